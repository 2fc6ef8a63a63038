"""Count the arrows between rooms: pairs of ``package.A`` and ``package.B`` where a module of A imports one of B.

``make check`` runs it. It fails where a package has more arrows than its limit, or a circle of rooms.
"""

import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph, build_graph

#: Most arrows of each package; raise one only with a reason in docs/decisions.
LIMITS = {"corelane": 71, "api": 36, "workers": 10, "compile": 31}


def count_arrows(graph: ImportGraph, package: str) -> dict[str, set[str]]:
    """Return the rooms of a package, each with the rooms it imports."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for module in graph.find_descendants(package):
        for imported in graph.find_modules_directly_imported_by(module):
            room, other = module.split(".")[1], f"{imported}.".split(".")[1]
            if imported.startswith(f"{package}.") and room != other:
                arrows[room].add(other)
    return arrows


def main() -> int:
    """Print every package's arrows; return 1 where there are too many, or a circle."""
    graph = build_graph(*LIMITS, exclude_type_checking_imports=True)
    is_wrong = False
    for package, most in LIMITS.items():
        arrows = count_arrows(graph, package)
        count = sum(map(len, arrows.values()))
        lines = [f"{package}: {count} arrows between rooms, {most} at most"]
        lines += [f"    {room} → {' '.join(sorted(arrows[room]))}" for room in sorted(arrows)]
        try:
            TopologicalSorter(arrows).prepare()
        except CycleError as error:
            lines.append(f"    circle: {' → '.join(error.args[1])}")
            is_wrong = True
        is_wrong = is_wrong or count > most
        sys.stdout.write("\n".join(lines) + "\n")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
