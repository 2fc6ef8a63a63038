"""Draw where a job's time went, for a terminal: a bar for each part, one after the other."""

from corelane.domain.timing import JobTiming

#: Width of all bars together, in columns.
WIDTH = 40

PARTS = ("submit", "wait", "tokenize", "compute", "merge", "commit", "other")


def draw_waterfall(timing: JobTiming) -> dict[str, str]:
    """Return a line for the whole time and one for each part, by their names."""
    cores = f"{timing.cores} core{'s' if timing.cores != 1 else ''}"
    lines = {"took": f"{show_time(timing.wall_s)}, {show_time(timing.core_s)} of work on {cores}"}
    before_s, whole_s = 0.0, timing.wall_s or 1.0
    for name in PARTS:
        seconds: float = getattr(timing, f"{name}_s")
        start, end = (round(WIDTH * at_s / whole_s) for at_s in (before_s, before_s + seconds))
        bar = "█" * (end - start) or ("▏" if seconds else "")
        lines[name] = f"{show_time(seconds):>8}  {' ' * start}{bar}".rstrip()
        before_s += seconds
    if timing.deliver_s is not None:
        lines["deliver"] = f"{show_time(timing.deliver_s):>8}  {' ' * WIDTH}→"
    return lines


def show_time(seconds: float) -> str:
    """Return a time in a suitable unit."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.1f} min"
