"""What fits on a host, guesses from published figures, hosts side by side, and files for them."""

from dataclasses import replace
from typing import Any

import pytest

from corelane.domain.instances import CPU, INSTANCES, Instance
from corelane.errors import InvalidInput
from corelane.plugins.lab.planning.forecast import Demand, Mix, demand_of_rate
from corelane.plugins.lab.planning.hosts import (
    GIB,
    PER_CORE_PER_S,
    HostChoice,
    ModelWeight,
    choose,
    compare,
    guess,
    hosts_for,
    kustomize_patch,
    room_on,
)
from corelane.plugins.lab.planning.profile import Profile, ShapeTime

yaml: Any = pytest.importorskip("yaml")

#: A model of 100 MB, in a worker of 550.
SMALL = ModelWeight.of(100_000_000)

#: One row of 128 tokens takes 10 ms, four 34.
PROFILE = Profile(
    version="v@1", shapes=[ShapeTime(rows=4, length=128, base_s=0.002, row_s=0.008)], device_bytes=100_000_000, cpus=2
)


def demand(rate: float, objective_s: float = 0.2) -> Demand:
    return demand_of_rate(rate, Mix([(100,)], 128), objective_s)


def test_cores_vcpu_and_memory_bind_the_workers_of_a_host() -> None:
    assert (room_on(INSTANCES["inf1.xlarge"], SMALL).workers, room_on(INSTANCES["inf1.xlarge"], SMALL).binds) == (
        3,
        "vCPU",
    )
    assert room_on(INSTANCES["inf1.2xlarge"], SMALL).binds == "cores"
    large = ModelWeight(worker_bytes=4 * GIB, device_bytes=3 * GIB)
    assert room_on(INSTANCES["inf2.xlarge"], large).binds == "cores"
    assert (room_on(INSTANCES["inf1.2xlarge"], large).workers, room_on(INSTANCES["inf1.2xlarge"], large).binds) == (
        0,
        "device memory",
    )
    heavy = ModelWeight(worker_bytes=10 * GIB, device_bytes=GIB)
    assert (room_on(INSTANCES["inf2.xlarge"], heavy).workers, room_on(INSTANCES["inf2.xlarge"], heavy).binds) == (
        1,
        "host memory",
    )


def test_models_of_a_core_are_counted_by_its_part_of_the_devices() -> None:
    assert room_on(INSTANCES["inf1.6xlarge"], ModelWeight(GIB, GIB)).models_per_core == 2
    assert room_on(INSTANCES["inf2.48xlarge"], ModelWeight(GIB, GIB)).models_per_core == 16


def test_hosts_are_bound_by_workers_or_by_what_requests_cost_their_cpus() -> None:
    inf2 = INSTANCES["inf2.xlarge"]
    assert hosts_for(inf2, 5, SMALL, 10, 10) == (3, "cores")
    assert hosts_for(inf2, 1, SMALL, 4000, 4000) == (4, "vCPU for requests")
    assert hosts_for(inf2, 1, ModelWeight(GIB, 20 * GIB), 1, 1) is None
    assert hosts_for(INSTANCES[CPU], 5, SMALL, 1, 1, own_cpus=2) == (3, "cores")


def test_a_guess_says_so_and_has_a_source() -> None:
    assert PER_CORE_PER_S.keys() == {"cpu", "inf1", "inf2", "trn1"}
    inf2 = guess(PROFILE, "inf2")
    assert inf2.guess is not None
    assert "79.1 times the speed of cpu" in inf2.guess
    assert not inf2.flexible_rows
    assert inf2.batch_s(128, 1) == pytest.approx(0.001)
    assert guess(PROFILE, CPU) is PROFILE
    with pytest.raises(InvalidInput, match="nothing was published to guess the speed of trn2"):
        guess(PROFILE, "trn2")


def test_hosts_stand_side_by_side_cheapest_first() -> None:
    instances = [INSTANCES[name] for name in ("inf2.xlarge", "inf1.xlarge", CPU, "trn2.48xlarge")]
    found, refused = compare({}, PROFILE, demand(100), instances)
    assert [each.instance.name for each in found] == ["inf1.xlarge", "inf2.xlarge", CPU]
    assert list(refused) == ["trn2.48xlarge"]
    assert found[0].per_hour == 0.228
    assert found[0].per_million == pytest.approx(0.228 / 3600 / 100 * 1e6)
    assert choose(found).instance.name == CPU
    turned, _ = compare({}, PROFILE, demand(100), instances[::-1])
    assert [each.instance for each in turned] == [each.instance for each in found], "the order of types matters"
    assert choose(found[:2]).instance.name == "inf1.xlarge"
    measured = guess(PROFILE, "inf2").model_copy(update={"guess": None})
    assert choose(compare({"inf2": measured}, PROFILE, demand(100), instances)[0]).forecast.profile is measured
    assert candidate(7, 3, INSTANCES["inf2.xlarge"]).workers_a_host == 3
    reserved, _ = compare({}, PROFILE, demand(100), instances[:1], reserved=True)
    assert reserved[0].per_hour == 0.328


def candidate(cores: int, hosts: int = 1, instance: Instance = INSTANCES[CPU]) -> HostChoice:
    [found], _ = compare({}, PROFILE, demand(10), [INSTANCES[CPU]])
    return replace(found, instance=instance, hosts=hosts, outlook=replace(found.outlook, cores=cores))


def test_a_patch_has_the_replicas_and_a_core_for_each() -> None:
    patch = yaml.safe_load(kustomize_patch(candidate(6, 3, INSTANCES["inf2.xlarge"]), ["a plan"]))
    assert patch["spec"]["replicas"] == 6
    pod = patch["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"]["aws.amazon.com/neuroncore"] == "1"
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "536Mi"}
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "inf2.xlarge"}
    assert "nodeSelector" not in kustomize_patch(candidate(2), [])
