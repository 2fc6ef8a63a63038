"""What must not stand in rendered manifests: combinations that Kubernetes accepts and that break Corelane.

``kubectl kustomize OVERLAY | python -m deploy.kubernetes.check`` prints what is wrong with an overlay of your own, a
sentence each. The schemas of Kubernetes cannot express such rules. The tests check every overlay of the repository.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

#: The resources of the Neuron device plugin: one core; a device with all its cores, and the older name of a device.
NEURON_CORE, NEURON_DEVICES = "aws.amazon.com/neuroncore", ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice")

#: Figures that count running work, on which a scaler may act.
SCALING_FIGURES = ("corelane_backlog_seconds", "corelane_core_busy_ratio")

#: Least time that a scaler must wait before it stops the last worker, in seconds: loading a model takes minutes.
LEAST_COOLDOWN_S = 600

#: Time that a Neuron runtime, or the removal of an endpoint, may take at the end of a process, in seconds.
CLOSE_S = 30

#: The time limit of one batch where the settings give none, in seconds: CORELANE_EXEC_TIMEOUT_S.
EXEC_TIMEOUT_S = 30

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet")


def faults(objects: Sequence[Object]) -> list[str]:
    """Return what is wrong with rendered objects, a sentence each; empty if nothing is."""
    found: list[str] = []
    for workload in of_kind(objects, *WORKLOADS):
        name = name_of(workload)
        found += [f"{name}: {fault}" for fault in pod_faults(pod_of(workload))]
        if runs_worker(workload):
            found += [f"{name}: {fault}" for fault in worker_faults(workload, exec_timeout_s(objects))]
    return [
        *found,
        *scaler_faults(objects),
        *budget_faults(objects),
        *network_faults(objects),
        *monitor_faults(objects),
        *(f"{name_of(secret)}: keep secrets out of manifests" for secret in of_kind(objects, "Secret")),
    ]


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """Return the objects of some kinds."""
    return [each for each in objects if each["kind"] in kinds]


def name_of(each: Object) -> str:
    """Return kind and name, for sentences."""
    return f"{each['kind']} {each['metadata']['name']}"


def pod_of(workload: Object) -> Object:
    """Return the pod's specification."""
    pod: Object = workload["spec"]["template"]["spec"]
    return pod


def containers(pod: Object) -> Iterator[Object]:
    """Yield every container, those that run before the others too."""
    yield from pod.get("initContainers", ())
    yield from pod["containers"]


def runs_worker(workload: Object) -> bool:
    """Whether a container of the pod is a worker."""
    return any(
        [*each.get("command", ()), *each.get("args", ())][:2] == ["corelane", "worker"]
        for each in pod_of(workload)["containers"]
    )


def exec_timeout_s(objects: Sequence[Object]) -> float:
    """Return how long one batch may take, by the settings of the manifests."""
    given = [float(each["data"].get("CORELANE_EXEC_TIMEOUT_S", EXEC_TIMEOUT_S)) for each in setting_maps(objects)]
    return max(given, default=EXEC_TIMEOUT_S)


def setting_maps(objects: Sequence[Object]) -> list[Object]:
    """Return the objects that hold our settings."""
    return [each for each in of_kind(objects, "ConfigMap") if "CORELANE_TARGET" in each.get("data", {})]


def pod_faults(pod: Object) -> Iterator[str]:
    """Yield what is wrong with any pod: rights, probes, resources, image."""
    security = pod.get("securityContext", {})
    if not security.get("runAsNonRoot") or not security.get("runAsUser"):
        yield "runs as root: set runAsNonRoot and runAsUser"
    if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "has no seccomp profile: set RuntimeDefault"
    if pod.get("automountServiceAccountToken") is not False:
        yield "gets a token of the service account: set automountServiceAccountToken to false"
    if pod.get("enableServiceLinks") is not False:
        yield "gets variables such as CORELANE_API_PORT, which look like settings: set enableServiceLinks to false"
    if pod.get("hostNetwork") or pod.get("hostPID") or any("hostPath" in each for each in pod.get("volumes", ())):
        yield "shares the host's network, processes or files"
    for container in containers(pod):
        yield from (f"container {container['name']} {fault}" for fault in container_faults(container))
    for container in pod["containers"]:
        yield from (f"container {container['name']} {fault}" for fault in probe_faults(container))
    cores = sum(int(each.get("resources", {}).get("limits", {}).get(NEURON_CORE, 0)) for each in containers(pod))
    if cores > 1:
        yield f"has {cores} Neuron cores: one pod is one core"


def container_faults(container: Object) -> Iterator[str]:
    """Yield what is wrong with a container, apart from its probes."""
    security = container.get("securityContext", {})
    if not security.get("readOnlyRootFilesystem"):
        yield "has a writable root"
    if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
        yield "may gain privileges"
    if security.get("capabilities", {}).get("drop") != ["ALL"] or security.get("capabilities", {}).get("add"):
        yield "has capabilities: drop ALL, Neuron devices need none"
    if security.get("runAsUser") == 0:
        yield "runs as root"
    resources = container.get("resources", {})
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    if "memory" not in limits or not {"cpu", "memory"} <= requests.keys():
        yield "does not say what it needs: requests of cpu and memory, and a limit of memory"
    if requests.get(NEURON_CORE, limits.get(NEURON_CORE)) != limits.get(NEURON_CORE):
        yield "asks for another number of Neuron cores than its limit"
    if {*NEURON_DEVICES} & {*requests, *limits}:
        yield f"asks for whole devices: ask for {NEURON_CORE}"
    image = container["image"]
    if "@sha256:" not in image and (":" not in image.rpartition("/")[2] or image.endswith(":latest")):
        yield f"has an image that may change: {image}"


def probe_faults(container: Object) -> Iterator[str]:
    """Yield what is wrong with the probes of a container."""
    missing = [name for name in PROBES if name not in container]
    if missing:
        yield f"has no {', '.join(missing)}"
    paths = [container.get(name, {}).get("httpGet", {}).get("path") for name in PROBES]
    if "/readyz" in paths:
        yield "is probed at /readyz, which fails while no core serves: a fleet at zero would take no job that wakes it"


def worker_faults(workload: Object, batch_s: float) -> Iterator[str]:
    """Yield what is wrong with the workload of the workers."""
    spec, pod = workload["spec"], pod_of(workload)
    if workload["kind"] == "Deployment":
        if spec.get("strategy", {}).get("type") != "Recreate":
            yield "starts a new worker before the old one has given its core back: use a StatefulSet"
        yield "gives cores new names with each pod: use a StatefulSet"
    elif spec.get("podManagementPolicy") != "Parallel":
        yield "starts workers one after the other: set podManagementPolicy to Parallel"
    if pod.get("terminationGracePeriodSeconds", 30) < batch_s + CLOSE_S:
        yield f"is killed in a batch: terminationGracePeriodSeconds must be {batch_s + CLOSE_S:.0f} at least"
    variables = [variable for each in pod["containers"] for variable in each.get("env", ())]
    names = [each for each in variables if each["name"] == "CORELANE_CORE_HOST"]
    if [each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for each in names] != ["metadata.name"]:
        yield "does not name its core after the pod: take CORELANE_CORE_HOST from metadata.name"


def scaler_faults(objects: Sequence[Object]) -> Iterator[str]:
    """Yield what is wrong with scalers, and between them."""
    targets = [
        (
            name_of(each),
            each["spec"]["scaleTargetRef"].get("kind", "Deployment"),
            each["spec"]["scaleTargetRef"]["name"],
        )
        for each in of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler")
    ]
    for name, kind, target in targets:
        others = [other for other, *theirs in targets if theirs == [kind, target] and other != name]
        yield from (f"{name} and {other} rule the same {kind} {target}" for other in others if name < other)
        found = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == target]
        if not found:
            yield f"{name} rules {kind} {target}, which is not there"
        if any("replicas" in each["spec"] for each in found):
            yield f"{kind} {target} has replicas, which {name} rules: each apply would undo the scaler's work"
        if any(runs_worker(each) for each in found) and name.startswith("Horizontal"):
            yield f"{name} scales workers by what Kubernetes sees: use the component keda"
    for each in of_kind(objects, "ScaledObject"):
        yield from (f"{name_of(each)} {fault}" for fault in trigger_faults(each["spec"]))
        least = [data["data"].get("CORELANE_MIN_CORES", "1") for data in setting_maps(objects)]
        if each["spec"].get("minReplicaCount", 0) == 0 and "0" not in least:
            yield f"{name_of(each)} cannot come back from zero: set CORELANE_MIN_CORES to 0, so that the API takes jobs"


def trigger_faults(spec: Object) -> Iterator[str]:
    """Yield what is wrong with how a ScaledObject decides."""
    for trigger in spec["triggers"]:
        about = trigger["metadata"]
        if trigger["type"] not in ("prometheus", "metrics-api"):
            yield f"scales on {trigger['type']}: the length of a list is not the load, and leaves out running work"
        elif trigger["type"] == "prometheus" and not any(
            figure in about.get("query", "") for figure in SCALING_FIGURES
        ):
            yield f"scales on {about.get('query')!r}: use {SCALING_FIGURES[0]}, which counts running work"
        elif trigger["type"] == "prometheus" and about.get("ignoreNullValues") != "false":
            yield "takes missing figures for no work: set ignoreNullValues to false"
        if not {"activationThreshold", "activationTargetValue"} & about.keys():
            yield "does not say when the first worker starts: set an activation threshold"
    if "fallback" not in spec:
        yield "has no fallback: say how many workers run while there are no figures"
    if spec.get("cooldownPeriod", 300) < LEAST_COOLDOWN_S:
        yield f"stops the last worker sooner than models load: cooldownPeriod must be {LEAST_COOLDOWN_S} at least"


def budget_faults(objects: Sequence[Object]) -> Iterator[str]:
    """Yield our parts without a budget for disruptions, or that may all land on one node."""
    budgets = [each["spec"]["selector"]["matchLabels"] for each in of_kind(objects, "PodDisruptionBudget")]
    for workload in of_kind(objects, "Deployment", "StatefulSet"):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        if labels.get("app.kubernetes.io/name") != "corelane" or workload["spec"].get("replicas") == 1:
            continue
        if not any(budget.items() <= labels.items() for budget in budgets):
            yield f"{name_of(workload)} has no PodDisruptionBudget"
        if "topologySpreadConstraints" not in pod_of(workload):
            yield f"{name_of(workload)} has no topologySpreadConstraints"


def network_faults(objects: Sequence[Object]) -> Iterator[str]:
    """Yield what is wrong with network policies: one is missing, or lets in too many."""
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy")]
    denied = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if denied not in policies:
        yield "no NetworkPolicy denies everything else"
    for policy in policies:
        if any("from" not in rule for rule in policy.get("ingress", ())):
            yield "a NetworkPolicy lets everybody in"
        if policy["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/name") == "corelane-redis":
            sources = [source for rule in policy.get("ingress", ()) for source in rule.get("from", ())]
            if any(source.keys() != {"podSelector"} or not source["podSelector"] for source in sources):
                yield "others than our pods reach Redis"


def monitor_faults(objects: Sequence[Object]) -> Iterator[str]:
    """Yield monitors that read the figures of the service more than once."""
    for monitor in of_kind(objects, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        services = [
            each for each in of_kind(objects, "Service") if wanted <= each["metadata"].get("labels", {}).items()
        ]
        selectors = [each["spec"]["selector"].items() for each in services]
        pods = [
            each["spec"]
            for each in of_kind(objects, "Deployment", "StatefulSet")
            if any(selector <= each["spec"]["template"]["metadata"]["labels"].items() for selector in selectors)
        ]
        single = [spec for spec in pods if spec.get("replicas") == 1 and spec.get("strategy") == {"type": "Recreate"}]
        if len(services) != 1 or len(pods) != 1 or single != pods:
            yield f"{name_of(monitor)} has more than one target, and each shows the whole service: sums would double"


def main() -> int:
    """Check the objects on standard input; print what is wrong, and return the exit status."""
    import yaml

    objects = [each for each in yaml.safe_load_all(sys.stdin) if each]
    found = faults(objects)
    sys.stdout.writelines(f"{fault}\n" for fault in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
