"""Several hosts for real: one is cut off while it works, for longer than a lease, and comes back, under load.

Nothing is lost, nothing is answered twice, and what the host answers late is refused, although the clocks of the hosts
are an hour apart. `make test-long-runs` does it once, with the null engine; `make hosts` five times, with the built-in
model.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from corelane.client import Client
from tests.chaos.audit import audit
from tests.chaos.hooks import hooks
from tests.chaos.load import Load, make
from tests.chaos.watch import Watch, is_answered
from tests.hosts.fleet import HostFleet
from tests.hosts.network import Host, cut_off
from tests.tools.waiting import eventually

#: Most items of a job; threads that follow their jobs, and threads that only submit.
MOST_ITEMS, FOLLOWING, STEADY = 30, 2, 2

#: Items of a job that keeps the cores busy: far more than they answer meanwhile.
FLOOD_ITEMS = 20_000

#: Cuts until one strikes a host that holds work and answers it too late.
MOST_CUTS = 10


def cut_at_work(fleet: HostFleet, host: Host) -> None:
    """Cut a host off that holds work until another host has answered all of it; return once it claims again.

    What it answered meanwhile comes late: by then its lease has ended, and another core has the work.
    """
    with cut_off(host):
        held = fleet.held_by(host)
        eventually(lambda: not fleet.serves(host) and not fleet.held_by(host))
        with fleet.redis.client() as raw:
            eventually(lambda: all(is_answered(raw, job, items) for job, items in held.items()))
    eventually(lambda: bool(fleet.held_by(host)))


def refuse_duplicate_host(fleet: HostFleet) -> None:
    """Start a worker under the name of another host's core: it says what is wrong, and takes nothing."""
    east, west = fleet.workers
    done = fleet.run(west, "worker", "--core", "0", CORELANE_CORE_HOST=east.name)
    assert done.returncode == 1
    assert "another machine serves a core named east/0" in done.stderr


@contextmanager
def flood(load: Load, seed: int) -> Iterator[None]:
    """Keep every core busy inside a ``with``: a job with more items than can be answered, canceled at the end."""
    job = make(f"{seed}-flood", FLOOD_ITEMS, "canceled", "lines", priority="low")
    with httpx2.Client(base_url=load.url, timeout=30) as http, Client(load.url, job.key) as client:
        assert load.submit(http, job)
        yield
        client.cancel(job.id)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_host_that_is_cut_off_loses_and_repeats_nothing(hosts: HostFleet, seed: int) -> None:
    victim = hosts.workers[seed % 2]
    with hooks(seed, hosts.address) as found, Watch(hosts.redis) as watch:
        with Load(hosts.url, seed, FOLLOWING, MOST_ITEMS, steady=STEADY, hook=found.url) as load, flood(load, seed):
            refuse_duplicate_host(hosts)
            for _ in range(MOST_CUTS):
                eventually(lambda: bool(hosts.held_by(victim)))
                cut_at_work(hosts, victim)
                if hosts.refusals(victim):
                    break
        findings = audit(hosts, load, watch.sight, hooks=found, strange_ends=hosts.strange_ends())
    assert hosts.refusals(victim)
    assert not findings.problems, "\n".join(findings.problems)
    assert findings.jobs > 0
