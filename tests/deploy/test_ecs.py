"""The ECS files: botocore takes them by AWS' own service models, commands and settings exist, policies allow little."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample, render
from corelane.metrics.series import parse
from corelane.settings import Settings
from tests.deploy.commands import check_command

FOLDER = Path(__file__).parents[2] / "deploy" / "ecs"
GUIDE = (FOLDER.parents[1] / "docs" / "deploy.md").read_text()
TASKS = sorted(FOLDER.glob("task-*.json"))
POLICIES = sorted((FOLDER / "iam").glob("*.json"))

#: The operation whose input a file is, by how its name begins.
OPERATIONS = {
    "task-": ("ecs", "RegisterTaskDefinition"),
    "service-": ("ecs", "CreateService"),
    "capacity-provider-": ("ecs", "CreateCapacityProvider"),
    "auto-scaling-group": ("autoscaling", "CreateAutoScalingGroup"),
    "metric-": ("logs", "PutMetricFilter"),
    "scalable-target": ("application-autoscaling", "RegisterScalableTarget"),
    "scaling-policy": ("application-autoscaling", "PutScalingPolicy"),
}

#: What stands for the names in braces; the guide sets each of them.
VALUES = {
    "ACCOUNT": "123456789012",
    "REGION": "eu-central-1",
    "NAME": "corelane",
    "BUCKET": "corelane-files",
    "IMAGE": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/corelane:1",
    "NEURON_IMAGE": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/corelane-neuron:1",
    "SUBNET_A": "subnet-0aaaaaaaaaaaaaaaa",
    "SUBNET_B": "subnet-0bbbbbbbbbbbbbbbb",
    "SECURITY_GROUP": "sg-0cccccccccccccccc",
    "TARGET_GROUP": "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/corelane/0123456789abcdef",
    "AUTO_SCALING_GROUP": "arn:aws:autoscaling:eu-central-1:123456789012:autoScalingGroup:0:autoScalingGroupName/c",
    "LAUNCH_TEMPLATE": "lt-0fffffffffffffffff",
    "CAPACITY": "SPOT",
    "FILE_SYSTEM": "fs-0dddddddddddddddd",
    "ACCESS_POINT": "fsap-0eeeeeeeeeeeeeeee",
    "REDIS_URL_ID": "a1B2c3",
    "WEBHOOK_SECRET_ID": "d4E5f6",
}

#: Commands and options that the command line adds to the operations of the services.
OWN_COMMANDS = {("s3", "sync"), ("ecr", "get-login-password")}
OWN_OPTIONS = {"cli-input-json", "output", "query"}

#: Actions that AWS lets be granted for no single resource.
WITHOUT_RESOURCE = {"ecr:GetAuthorizationToken"}


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(re.sub(r"\$\{(\w+)\}", lambda found: VALUES[found[1]], path.read_text())))


@cache
def model_of(service: str) -> Any:
    session = pytest.importorskip("botocore.session", reason="botocore is in the dev extra")
    return session.get_session().get_service_model(service)


def contradictions(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yield what botocore's own validation leaves to the service: values of enumerations and patterns."""
    if shape.type_name == "structure":
        for name, part in value.items():
            yield from contradictions(part, shape.members[name], f"{where}.{name}")
    elif shape.type_name == "list":
        for number, part in enumerate(value):
            yield from contradictions(part, shape.member, f"{where}[{number}]")
    elif shape.type_name == "string":
        enum, pattern = getattr(shape, "enum", None), shape.metadata.get("pattern")
        if enum and value not in enum:
            yield f"{where}: {value!r} is none of {enum}"
        with suppress(re.error):  # some are written for another language
            if pattern and not re.fullmatch(pattern, value):
                yield f"{where}: {value!r} does not match {pattern}"


def test_every_file_is_the_input_of_an_operation() -> None:
    for path in FOLDER.glob("*.json"):
        assert path.name.startswith(tuple(OPERATIONS)), path.name


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_aws_service_model_takes_the_file(path: Path) -> None:
    service, operation = next(found for begin, found in OPERATIONS.items() if path.name.startswith(begin))
    shape = model_of(service).operation_model(operation).input_shape
    validate = pytest.importorskip("botocore.validate")
    report = validate.ParamValidator().validate(read(path), shape)
    assert not report.has_errors(), report.generate_report()
    assert list(contradictions(read(path), shape, path.stem)) == []


def test_service_model_finds_a_resource_type_that_is_none() -> None:
    task = read(FOLDER / "task-worker-managed.json")
    task["containerDefinitions"][0]["resourceRequirements"][0]["type"] = "NeuronDevices"
    shape = model_of("ecs").operation_model("RegisterTaskDefinition").input_shape
    [found] = contradictions(task, shape, "task")
    assert "NeuronDevices" in found


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.name)
def test_containers_run_commands_and_settings_that_exist(path: Path) -> None:
    for container in read(path)["containerDefinitions"]:
        names = {each["name"] for each in (*container.get("environment", ()), *container.get("secrets", ()))}
        assert {name.removeprefix("CORELANE_").lower() for name in names} <= set(Settings.model_fields)
        if container["entryPoint"] == ["corelane"]:
            check_command(["corelane", *container["command"]])
            check_command(container["healthCheck"]["command"][1:])
        assert container["logConfiguration"]["logDriver"] == "awslogs"
        assert not container.get("privileged")
        assert container["linuxParameters"]["capabilities"]["drop"] == ["ALL"]


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.name)
def test_no_secret_stands_in_a_task(path: Path) -> None:
    secret = {name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)}
    for container in read(path)["containerDefinitions"]:
        plain = {each["name"].removeprefix("CORELANE_").lower() for each in container.get("environment", ())}
        assert not plain & (secret | {"redis_url"})
        assert all(":secretsmanager:" in each["valueFrom"] for each in container.get("secrets", ()))


def test_one_task_takes_all_devices_of_its_host_in_one_way_or_the_other() -> None:
    [managed] = read(FOLDER / "task-worker-managed.json")["containerDefinitions"]
    assert managed["resourceRequirements"] == [{"type": "NeuronDevice", "value": "ALL"}]
    assert "devices" not in managed["linuxParameters"]
    [mapped] = read(FOLDER / "task-worker-ec2.json")["containerDefinitions"]
    assert [each["hostPath"] for each in mapped["linuxParameters"]["devices"]] == ["/dev/neuron0"]
    assert "resourceRequirements" not in mapped
    assert mapped["command"] == managed["command"] == ["serve", "--roles", "worker"]
    [service] = [read(path) for path in FOLDER.glob("service-worker-ec2.json")]
    assert {"type": "distinctInstance"} in service["placementConstraints"]


def test_spot_hosts_are_of_the_tasks_type_and_drain_before_they_are_taken() -> None:
    group = read(FOLDER / "auto-scaling-group.json")
    mixed = group["MixedInstancesPolicy"]
    types = [each["InstanceType"] for each in mixed["LaunchTemplate"]["Overrides"]]
    [place] = read(FOLDER / "task-worker-ec2.json")["placementConstraints"]
    assert [place["expression"]] == [f"attribute:ecs.instance-type == {name}" for name in types]
    spot = mixed["InstancesDistribution"]
    strategies = model_of("autoscaling").shape_for("InstancesDistribution").members["SpotAllocationStrategy"]
    assert f"{spot['SpotAllocationStrategy']} (recommended)" in re.sub(r"<[^>]+>", "", strategies.documentation)
    assert (spot["OnDemandBaseCapacity"], spot["OnDemandPercentageAboveBaseCapacity"]) == (1, 0)
    [provider] = [read(FOLDER / "capacity-provider-ec2.json")["autoScalingGroupProvider"]]
    assert provider["managedTerminationProtection"] == "ENABLED"
    assert group["NewInstancesProtectedFromScaleIn"], "managed termination protection asks for it"
    assert not group["CapacityRebalance"], "ECS gets no notice of hosts that it removes"
    assert "ECS_ENABLE_SPOT_INSTANCE_DRAINING=true >> /etc/ecs/ecs.config" in GUIDE
    assert not [path.name for path in FOLDER.glob("*.json") if "FARGATE_SPOT" in path.read_text()]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("service-*.json")), ids=lambda path: path.name)
def test_rolling_deploy_can_begin_and_is_rolled_back(path: Path) -> None:
    service = read(path)
    rules, count = service["deploymentConfiguration"], service["desiredCount"]
    may_stop = count - -(-count * rules["minimumHealthyPercent"] // 100)
    may_start = count * rules["maximumPercent"] // 100 - count
    assert may_stop > 0 or may_start > 0
    if path.name == "service-worker-ec2.json":
        assert may_stop > 0, "a device is mapped into one task at a time: an old task must stop first"
    assert rules["deploymentCircuitBreaker"] == {"enable": True, "rollback": True}


def test_workers_have_longer_to_stop_than_their_longest_batch() -> None:
    for path in FOLDER.glob("task-worker-*.json"):
        [worker] = read(path)["containerDefinitions"]
        assert Settings().exec_timeout_s * 2 < worker["stopTimeout"] <= 120  # the most that Fargate takes


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.name)
def test_policy_allows_little(path: Path) -> None:
    policy = read(path)
    assert policy["Version"] == "2012-10-17"
    for statement in policy["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert statement["Effect"] == "Allow"
        assert all(re.fullmatch(r"[a-z0-9-]+:[A-Za-z]+", action) for action in actions), "no wildcards in actions"
        if "Principal" in statement:
            assert actions == ["sts:AssumeRole"]
            assert statement["Principal"].keys() == {"Service"}
            continue
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        for resource in resources:
            if resource == "*":
                assert set(actions) <= WITHOUT_RESOURCE
            else:
                assert re.fullmatch(r"arn:aws:[a-z0-9-]+:[^*]*[/:][^*]+(?:[/:]\*)?", resource), resource


def test_actions_are_known_to_their_services() -> None:
    services = {"elasticfilesystem": None, "sts": "sts", "s3": None}
    for path in POLICIES:
        for statement in read(path)["Statement"]:
            for action in statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]:
                service, _, name = action.partition(":")
                if (model := services.get(service, service)) is not None and name != "GetAuthorizationToken":
                    assert name in model_of(model).operation_names, action


def test_metric_filter_reads_what_the_container_beside_the_api_tells(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, scaling = read(FOLDER / "task-api.json")["containerDefinitions"]
    [code] = scaling["command"]
    samples = [MetricSample(m.BACKLOG_S, 45.0), *(MetricSample(m.CORE_BUSY, busy, (f"a/{busy}",)) for busy in (1, 0.5))]
    shown = render(parse({}), samples)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO(shown))
    monkeypatch.setattr("time.sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        exec(compile(code, "scaling", "exec"), {})
    told = json.loads(capsys.readouterr().out)
    filtered = read(FOLDER / "metric-load.json")
    [metric] = filtered["metricTransformations"]
    assert told[metric["metricValue"].removeprefix("$.")] == 150.0
    assert filtered["filterPattern"] == f'{{ $.object = "{told["object"]}" }}'


def test_guide_sets_every_name_and_tells_of_every_file() -> None:
    for name in VALUES:
        assert re.search(rf"\b{name}=", GUIDE), name
    for path in FOLDER.glob("*.json"):
        begin = next(begin for begin in OPERATIONS if path.name.startswith(begin))
        assert f"`{path.stem}`" in GUIDE or f"`{begin}*`" in GUIDE, path.name
    for name in re.findall(r"\bfill ([a-z/-]+)", GUIDE):
        assert list(FOLDER.glob(f"{name}*.json")), name


def test_aws_commands_of_the_guide_exist_with_their_options() -> None:
    words = pytest.importorskip("botocore").xform_name
    found = re.findall(r"\baws ([a-z0-9-]+) ([a-z0-9-]+)((?:[^\n|&;)\\]|\\\n)*)", GUIDE)
    assert len(found) > 20
    for service, command, rest in found:
        if (service, command) in OWN_COMMANDS:
            continue
        model = model_of({"s3api": "s3"}.get(service, service))
        operations = {words(name, "-"): name for name in model.operation_names}
        shape = model.operation_model(operations[command]).input_shape
        known = {words(name, "-") for name in shape.members} if shape else set()
        assert set(re.findall(r"--([a-z0-9-]+)", rest)) <= known | OWN_OPTIONS, f"aws {service} {command}"
