"""Every overlay renders, is what Kubernetes and the operators take, and holds no combination that breaks it."""

import copy
import json
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from corelane.cli.roles import API_GRACE_S
from corelane.domain.dispatch import Core
from corelane.settings import Settings
from corelane.store.link.link import SOCKET_TIMEOUT_S
from deploy.kubernetes import rules
from deploy.kubernetes.check import faults, of_kind, pod_of
from tests.deploy.custom_resources import SCHEMAS
from tests.deploy.kubernetes_tools import (
    CUSTOM,
    KUBERNETES,
    VERSIONS,
    Object,
    model_faults,
    read_all,
    render,
    schema_faults,
)
from tests.monitoring.prometheus import rules as rules_of

#: The workers' StatefulSet, and what a pod of it asks for.
WORKLOAD, NEURON_CORE = "corelane-worker", "aws.amazon.com/neuroncore"

OVERLAYS = sorted(path.parent.name for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))

#: The overlay that the guide has its reader write.
MINE = "deploy/kubernetes/overlays/mine"

#: Overlays that users may make of the components, beside those in the repository.
MADE = {
    "cpu that scales": ("base", ["redis", "compile", "keda", "monitoring"], ""),
    "cpu that scales by the API": ("base", ["compile", "keda", "keda-api", "scale-to-zero", "one-node-files"], ""),
    "neuron of a fixed size": ("base", ["neuron", "ingress"], "replicas: [{name: corelane-worker, count: 12}]"),
}

IMAGES = "images: [{name: corelane, newTag: a}, {name: corelane-neuron, newTag: a}, {name: redis, newTag: a}]"


@cache
def overlay(name: str) -> list[Object]:
    return render(KUBERNETES / "overlays" / name)


def make(folder: Path, base: str, components: list[str], extra: str = "") -> list[Object]:
    """Render an overlay that a user might write."""
    folder.mkdir(exist_ok=True)
    beside = os.path.relpath(KUBERNETES, folder)
    lines = ["apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization", f"resources: [{beside}/{base}]"]
    lines += ["namespace: corelane", "components:", *(f"  - {beside}/components/{name}" for name in components)]
    (folder / "kustomization.yaml").write_text("\n".join([*lines, IMAGES, extra, ""]))
    return render(folder)


@cache
def made(name: str) -> list[Object]:
    """Render one of those that users may make, once."""
    with TemporaryDirectory() as folder:
        return make(Path(folder), *MADE[name])


def one(objects: list[Object], kind: str, name: str) -> Any:
    [found] = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def all_faults(objects: list[Object]) -> list[str]:
    """Return what speaks against objects: our rules, and the schemas of all versions and of custom resources."""
    schemas: Any = pytest.importorskip("jsonschema_rs")
    custom = [each for each in objects if each["kind"] in SCHEMAS]
    own = [each for each in objects if each["kind"] not in SCHEMAS]
    found = faults(objects) + [fault for version in VERSIONS for each in own for fault in schema_faults(each, version)]
    for each in custom:
        errors = schemas.validator_for(SCHEMAS[each["kind"]]).iter_errors(each)
        found += [f"{each['kind']} {error.instance_path}: {error.message[:300]}" for error in errors]
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlay_is_what_kubernetes_takes_and_holds_no_trap(name: str) -> None:
    assert all_faults(overlay(name)) == []


@pytest.mark.parametrize("name", MADE)
def test_components_go_together(name: str) -> None:
    assert all_faults(made(name)) == []


def test_custom_resources_are_what_their_operators_define() -> None:
    objects = overlay("inf2") + made("cpu that scales by the API")
    custom = [each for each in objects if each["kind"] in CUSTOM]
    custom += read_all(KUBERNETES / "eks" / "karpenter-inf2.yaml")
    assert {each["kind"] for each in custom} == CUSTOM.keys()
    assert SCHEMAS.keys() == CUSTOM.keys() - {"NodePool", "EC2NodeClass"}, "ours, closed"
    assert model_faults(custom) == []
    broken = copy.deepcopy(one(overlay("inf2"), "ScaledObject", WORKLOAD))
    broken["spec"]["fallback"]["replicas"] = "two"
    assert len(model_faults([broken])) == 1


def test_every_kind_of_overlay_is_there() -> None:
    assert {"cpu", "inf2", "trn2", "inf2-to-zero"} <= {*OVERLAYS}


def test_mistyped_fields_are_found() -> None:
    objects = copy.deepcopy(overlay("inf2"))
    one(objects, "StatefulSet", WORKLOAD)["spec"]["podManagmentPolicy"] = "Parallel"
    one(objects, "ScaledObject", WORKLOAD)["spec"]["coolDownPeriod"] = 900
    found = all_faults(objects)
    assert len(found) == len(VERSIONS) + 1
    assert all("podManagmentPolicy" in fault or "coolDownPeriod" in fault for fault in found)


def worker(objects: list[Object]) -> Any:
    return one(objects, "StatefulSet", WORKLOAD)


def scaler(objects: list[Object]) -> Any:
    return one(objects, "ScaledObject", WORKLOAD)["spec"]


def container(objects: list[Object]) -> Any:
    return worker(objects)["spec"]["template"]["spec"]["containers"][0]


def add_autoscaler(objects: list[Object]) -> None:
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKLOAD}
    spec = {"scaleTargetRef": target, "maxReplicas": 9}
    objects.append({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "cpu"}, "spec": spec})


def scale_on_list(objects: list[Object]) -> None:
    metadata = {"listName": "core.a.0", "listLength": "5", "activationListLength": "1"}
    scaler(objects)["triggers"] = [{"type": "redis", "metadata": metadata}]


def make_deployment(objects: list[Object]) -> None:
    worker(objects).update(kind="Deployment")


def set_in(find: Callable[[list[Object]], Any], name: str, value: object) -> Callable[[list[Object]], None]:
    return lambda objects: find(objects).update({name: value})


def leave_out(find: Callable[[list[Object]], Any], name: str) -> Callable[[list[Object]], None]:
    return lambda objects: find(objects).pop(name)


def pod(objects: list[Object]) -> Any:
    return pod_of(worker(objects))


def secured(objects: list[Object]) -> Any:
    return container(objects)["securityContext"]


def metrics(objects: list[Object]) -> Any:
    return one(objects, "Deployment", "corelane-metrics")["spec"]


def api(objects: list[Object]) -> Any:
    return pod_of(one(objects, "Deployment", "corelane-api"))["containers"][0]


#: What is done to the overlay for inf2, and a part of the sentence that refuses it.
BROKEN = {
    "a second autoscaler": (add_autoscaler, "rule the same StatefulSet"),
    "the length of a list": (scale_on_list, "the length of a list is not the load"),
    "a query of no load": (
        lambda o: scaler(o)["triggers"][0]["metadata"].update(query="sum(redis_list_length)"),
        "which counts running work",
    ),
    "no news is no work": (
        lambda o: scaler(o)["triggers"][0]["metadata"].pop("ignoreNullValues"),
        "takes missing figures for no work",
    ),
    "a figure that is never zero": (set_in(scaler, "minReplicaCount", 0), "cannot come back from zero"),
    "no activation": (
        lambda o: scaler(o)["triggers"][0]["metadata"].pop("activationThreshold"),
        "set an activation threshold",
    ),
    "no fallback": (leave_out(scaler, "fallback"), "has no fallback"),
    "a short cooldown": (set_in(scaler, "cooldownPeriod", 60), "sooner than models load"),
    "replicas under a scaler": (lambda o: worker(o)["spec"].update(replicas=3), "which ScaledObject"),
    "nothing to scale": (lambda o: o.remove(worker(o)), "which is not there"),
    "two cores in a pod": (
        lambda o: container(o)["resources"].update(
            limits={"memory": "1Gi", NEURON_CORE: "2"}, requests={"memory": "1Gi", "cpu": "1", NEURON_CORE: "2"}
        ),
        "one pod is one core",
    ),
    "whole devices": (
        lambda o: container(o)["resources"]["limits"].update({"aws.amazon.com/neuron": "1"}),
        "asks for whole devices",
    ),
    "fewer cores asked than allowed": (
        lambda o: container(o)["resources"]["requests"].update({NEURON_CORE: "0"}),
        "another number of Neuron cores",
    ),
    "two workers on one core": (make_deployment, "before the old one has given its core back"),
    "one after the other": (leave_out(lambda o: worker(o)["spec"], "podManagementPolicy"), "one after the other"),
    "killed in a batch": (set_in(pod, "terminationGracePeriodSeconds", 30), "is killed in a batch"),
    "names of hosts": (leave_out(container, "env"), "does not name its core after the pod"),
    "no probe": (leave_out(container, "livenessProbe"), "has no livenessProbe"),
    "probed at readiness": (
        lambda o: api(o)["readinessProbe"]["httpGet"].update(path="/readyz"),
        "would take no job that wakes it",
    ),
    "root": (set_in(pod, "securityContext", {"runAsUser": 0}), "runs as root"),
    "no seccomp": (leave_out(lambda o: pod(o)["securityContext"], "seccompProfile"), "has no seccomp profile"),
    "writable root": (set_in(secured, "readOnlyRootFilesystem", False), "has a writable root"),
    "a capability": (set_in(secured, "capabilities", {"drop": ["ALL"], "add": ["IPC_LOCK"]}), "has capabilities"),
    "privileges": (leave_out(secured, "allowPrivilegeEscalation"), "may gain privileges"),
    "a token": (leave_out(pod, "automountServiceAccountToken"), "gets a token"),
    "links to services": (leave_out(pod, "enableServiceLinks"), "which look like settings"),
    "files of the host": (lambda o: pod(o)["volumes"].append({"hostPath": {}}), "shares the host's"),
    "no limit": (set_in(container, "resources", {}), "does not say what it needs"),
    "an image that changes": (set_in(container, "image", "registry:5000/corelane"), "an image that may change"),
    "no budget": (
        lambda o: o.remove(one(o, "PodDisruptionBudget", WORKLOAD)),
        "has no PodDisruptionBudget",
    ),
    "all on one node": (leave_out(pod, "topologySpreadConstraints"), "has no topologySpreadConstraints"),
    "an open network": (lambda o: o.remove(one(o, "NetworkPolicy", "corelane-deny-all")), "denies everything else"),
    "a door for everybody": (
        lambda o: one(o, "NetworkPolicy", "corelane-api")["spec"].update(ingress=[{"ports": []}]),
        "lets everybody in",
    ),
    "two targets of one sum": (set_in(metrics, "replicas", 2), "sums would double"),
    "a secret": (lambda o: o.append({"kind": "Secret", "metadata": {"name": "a"}}), "keep secrets out"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_forbidden_combination_is_refused(name: str) -> None:
    objects = copy.deepcopy(overlay("inf2"))
    change, sentence = BROKEN[name]
    change(objects)
    assert [fault for fault in faults(objects) if sentence in fault] != []


def test_redis_is_reached_by_our_pods_only() -> None:
    objects = copy.deepcopy(overlay("cpu"))
    policy = one(objects, "NetworkPolicy", "corelane-redis")["spec"]
    policy["ingress"][0]["from"].append({"namespaceSelector": {}})
    assert faults(objects) == ["others than our pods reach Redis"]


def test_scaler_looks_at_its_own_namespace() -> None:
    query = scaler(overlay("inf2"))["triggers"][0]["metadata"]["query"]
    assert f'{{namespace="{worker(overlay("inf2"))["metadata"]["namespace"]}"}}' in query


def test_settings_of_the_manifests_are_settings() -> None:
    for objects in (*map(overlay, OVERLAYS), *map(made, MADE)):
        [data] = [each["data"] for each in of_kind(objects, "ConfigMap") if "CORELANE_TARGET" in each["data"]]
        own = {name.removeprefix("CORELANE_").lower(): value for name, value in data.items() if "CORELANE" in name}
        assert own.keys() <= Settings.model_fields.keys()
        settings = Settings(**own)
        assert settings.requires_keys
        assert {name for name in data if "CORELANE" not in name} <= {"NEURON_LOGICAL_NC_CONFIG"}


def test_name_of_a_pod_is_the_host_of_a_core() -> None:
    core = Core(Settings(core_host=f"{WORKLOAD}-17").core_host, 0)
    assert (str(core), core.queue) == ("corelane-worker-17/0", "core.corelane-worker-17.0")


def test_probes_leave_a_process_the_time_it_needs() -> None:
    probes = container(overlay("inf2"))
    ready = probes["readinessProbe"]["periodSeconds"] * probes["readinessProbe"]["failureThreshold"]
    alive = probes["livenessProbe"]["periodSeconds"] * probes["livenessProbe"]["failureThreshold"]
    assert ready < alive, "a core is left alone before it is killed"
    assert alive > SOCKET_TIMEOUT_S
    started = probes["startupProbe"]["periodSeconds"] * probes["startupProbe"]["failureThreshold"]
    assert started >= 1800, "half an hour for a core that is held, and for large models"
    [settings] = [each["data"] for each in of_kind(overlay("inf2"), "ConfigMap") if "CORELANE_TARGET" in each["data"]]
    for name in ("startup", "readiness", "liveness"):
        question = {"readiness": "ready", "liveness": "live"}.get(name, name)
        assert probes[f"{name}Probe"]["exec"]["command"] == [
            *("python", "-m", "corelane.cli.probe", question, settings["CORELANE_HEALTH_DIR"])
        ]


def test_api_ends_before_it_is_killed() -> None:
    pod = pod_of(one(overlay("inf2"), "Deployment", "corelane-api"))
    [_, pause] = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] > float(pause) + API_GRACE_S


@pytest.mark.parametrize("chip", ["inf2", "trn2"])
def test_overlay_of_a_chip_runs_on_its_hosts_only(chip: str) -> None:
    [term] = pod(overlay(chip))["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    [expression] = term["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("node.kubernetes.io/instance-type", "In")
    assert expression["values"]
    assert all(name.startswith(f"{chip}.") for name in expression["values"])


def test_nodes_of_eks_take_our_workers_and_nobody_else() -> None:
    node_class, pool = read_all(KUBERNETES / "eks" / "karpenter-inf2.yaml")
    [cluster] = read_all(KUBERNETES / "eks" / "cluster.yaml")
    [tolerated] = pod(overlay("inf2"))["tolerations"]
    template = pool["spec"]["template"]["spec"]
    assert template["nodeClassRef"]["name"] == node_class["metadata"]["name"]
    [types] = [each for each in template["requirements"] if each["key"] == "node.kubernetes.io/instance-type"]
    assert all(name.startswith("inf2.") for name in types["values"])
    [group] = [each for each in cluster["managedNodeGroups"] if each["name"] == "inf2"]
    assert group["instanceType"].startswith("inf2.")
    for taints in (template["taints"], group["taints"]):
        assert [(taint["key"], taint["effect"]) for taint in taints] == [(tolerated["key"], tolerated["effect"])]
    [network] = [each for each in cluster["addons"] if each["name"] == "vpc-cni"]
    assert json.loads(network["configurationValues"]) == {"enableNetworkPolicy": "true"}


def test_rules_of_the_operator_are_those_of_prometheus() -> None:
    assert rules.OBJECT.read_text() == rules.write(), "python -m deploy.kubernetes.rules"
    groups = one(overlay("inf2"), "PrometheusRule", "corelane")["spec"]["groups"]
    assert [rule for group in groups for rule in group["rules"]] == rules_of("alerts") + rules_of("recording")


def test_scrapes_have_the_job_that_alerts_ask_for() -> None:
    label = one(overlay("inf2"), "ServiceMonitor", "corelane")["spec"]["jobLabel"]
    job = one(overlay("inf2"), "Service", "corelane-metrics")["metadata"]["labels"][label]
    assert any(f'up{{job="{job}"}}' in rule["expr"] for rule in rules_of("alerts"))


def test_files_that_the_guide_names_are_there() -> None:
    guide = (KUBERNETES.parents[1] / "docs" / "deploy.md").read_text()
    named = set(re.findall(r"deploy/kubernetes/[\w./-]+\w", guide)) - {MINE, f"{MINE}/kustomization.yaml"}
    assert named != set()
    assert [name for name in named if not (KUBERNETES.parents[1] / name).exists()] == []
    components = {path.parent.name for path in KUBERNETES.glob("components/*/kustomization.yaml")}
    assert components | {*OVERLAYS} <= set(re.findall(r"`([\w-]+)`", guide))


def test_boards_come_with_monitoring_as_they_stand() -> None:
    boards = KUBERNETES.parent / "monitoring" / "grafana" / "boards"
    found = one(overlay("trn2"), "ConfigMap", "corelane-boards")
    assert found["data"] == {path.name: path.read_text() for path in boards.glob("*.json")}
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
