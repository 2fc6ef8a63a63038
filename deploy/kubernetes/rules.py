"""The rules of deploy/monitoring as an object of the Prometheus operator.

``python -m deploy.kubernetes.rules`` writes ``components/monitoring/rules.yaml`` again; a test compares.
"""

from pathlib import Path

#: Where the rules stand, and where the object is written.
RULES = Path(__file__).parent.parent / "monitoring" / "rules"
OBJECT = Path(__file__).parent / "components" / "monitoring" / "rules.yaml"

HEAD = """\
# Written by `python -m deploy.kubernetes.rules` from deploy/monitoring/rules. Change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: corelane
spec:
  groups:
"""


def write() -> str:
    """Return the object: the groups of every file as they stand, comments included."""
    text = HEAD
    for path in sorted(RULES.glob("*.yml")):
        _, groups = path.read_text().split("groups:\n")
        text += "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))
    return text


if __name__ == "__main__":
    OBJECT.write_text(write())
