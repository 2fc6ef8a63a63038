"""A plan as a patch for Kustomize: the replicas of the workers, what each asks for, and a core for each. Pure.

As an override for Docker Compose ``corelane.plugins.fleet.compose`` writes it.
"""

import json
from collections.abc import Iterator, Sequence

from corelane.planning.candidates import Candidate
from corelane.planning.hosts import GIB, WORKER_BYTES

#: The workload of the workers, and the container in it, as the patch names them.
WORKLOAD, CONTAINER = "corelane-worker", "worker"

#: The resource of the Neuron device plugin, one for each core.
NEURON_CORE = "aws.amazon.com/neuroncore"


def workers_a_host(candidate: Candidate) -> int:
    """Return how many workers each host runs."""
    return -(-candidate.outlook.cores // candidate.hosts)


def kustomize_patch(candidate: Candidate, about: Sequence[str]) -> str:
    """Return a strategic merge patch of the workers, for all hosts together."""
    memory = (candidate.profile.worker_bytes or WORKER_BYTES) * 5 // 4
    amounts = {"cpu": "1", "memory": f"{memory * 1024 // GIB}Mi"}
    limits = {"memory": amounts["memory"]}
    if candidate.instance.cores:
        limits[NEURON_CORE] = "1"
    container = {"name": CONTAINER, "resources": {"requests": amounts, "limits": limits}}
    pod: dict[str, object] = {"containers": [container]}
    if candidate.instance.cores:
        pod["nodeSelector"] = {"node.kubernetes.io/instance-type": candidate.instance.name}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": WORKLOAD},
        "spec": {"replicas": candidate.outlook.cores, "template": {"spec": pod}},
    }
    return "\n".join([*_comment(about), *_yaml(patch), ""])


def _comment(about: Sequence[str]) -> Iterator[str]:
    for line in about:
        yield f"# {line}"


def _yaml(value: object, indent: int = 0) -> Iterator[str]:
    """Yield mappings and lists of plain values as lines of YAML."""
    pad = "  " * indent
    if isinstance(value, dict):
        for name, part in value.items():
            if isinstance(part, dict | list):
                yield f"{pad}{name}:"
                yield from _yaml(part, indent + 1)
            else:
                yield f"{pad}{name}: {json.dumps(part)}"
    elif isinstance(value, list):
        for part in value:
            first, *rest = _yaml(part, indent + 1)
            yield f"{pad}- {first.strip()}"
            yield from rest
