"""The parts do their work as the manifests run them: their commands and settings, no root, a root that is read-only."""

from contextlib import ExitStack
from pathlib import Path

from corelane.client import Client
from corelane.domain.jobs import JobStatus
from tests.conftest import free_port
from tests.deploy.kubernetes_tools import KUBERNETES, render
from tests.deploy.pods import need_pods, run_pod, settings_of, wait_for_probe
from tests.tools.servers import RedisNode, running
from tests.tools.waiting import eventually

#: The parts, and their workloads. The webhook sender is run as the keeper is.
PARTS = {"worker": "StatefulSet", "api": "Deployment", "keeper": "Deployment"}


def test_parts_do_their_work_as_pods_do(tmp_path: Path) -> None:
    need_pods(tmp_path / "try")
    objects = render(KUBERNETES / "overlays" / "cpu")
    redis, port = RedisNode(tmp_path / "redis"), free_port()
    # What this machine decides, and an engine without a model.
    ours = {"CORELANE_REDIS_URL": redis.url, "CORELANE_TARGET": "null", "CORELANE_PORT": str(port)}
    ours |= {"CORELANE_AUTH": "off", "CORELANE_HOST": "127.0.0.1"}
    with running(redis), ExitStack() as stack:
        pods = {}
        for part, kind in PARTS.items():
            [workload] = [
                each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, f"corelane-{part}")
            ]
            pod = workload["spec"]["template"]["spec"]
            [container] = pod["containers"]
            variables = settings_of(container, objects, f"corelane-{part}-0") | ours
            user = pod["securityContext"]["runAsUser"]
            pods[part] = stack.enter_context(run_pod(container, user, tmp_path / part, variables))
        for part in ("worker", "keeper"):
            for probe in ("startup", "readiness", "liveness"):
                wait_for_probe(pods[part], probe)
        with Client(f"http://127.0.0.1:{port}") as client:
            eventually(client.ready)
            assert [core["core"] for core in client.cores()] == ["corelane-worker-0/0"], "named after the pod"
            job = client.wait(client.submit([{"question": "Who?", "context": "Nobody."}]).id)
            assert job.status is JobStatus.SUCCEEDED
        redis.stop()
        for part in ("worker", "keeper"):
            assert pods[part].probe("liveness") is None, "an outage of Redis is no reason to restart anything"
        redis.start()
        assert {part: pod.stop() for part, pod in pods.items()} == dict.fromkeys(PARTS, 0)
