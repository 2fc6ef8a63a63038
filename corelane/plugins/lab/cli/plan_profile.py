"""``corelane plan profile``: measure one core of the running service, and keep what was found."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.output import error_console, print_fields, print_line
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption, connect

if TYPE_CHECKING:
    from corelane.plugins.lab.planning.profile import Profile
    from corelane.plugins.lab.workload import Questions

#: How long the service is measured, in seconds.
PROFILE_S = 30.0

MixOption = Annotated[Path | None, typer.Option(help="Questions to ask: SQuAD's layout, or lines of JSON.")]
SecondsOption = Annotated[float, typer.Option(min=1, help="How long the service is measured.")]


def profile(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="Where the profile goes.")],
    mix: MixOption = None,
    model: ModelOption = "default",
    seconds: SecondsOption = PROFILE_S,
    instance: Annotated[str | None, typer.Option(help="The type of host that it runs on.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="CPUs of that host; this machine's, if it is here.")] = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure one core of an idle service, and write its profile."""
    from corelane.plugins.lab.planning.profile import save_profile

    found = measure(url, api_key, model, mix, seconds, instance=instance, cpus=cpus)
    save_profile(found, file)
    if as_json:
        print_line(found)
    else:
        print_fields(fields(found))


def measure(
    url: str | None,
    api_key: str | None,
    model: str,
    mix: Path | None,
    seconds: float,
    *,
    instance: str | None = None,
    cpus: int | None = None,
) -> "Profile":
    """Measure a service; say on standard error what is done."""
    from corelane.plugins.lab.cli.plan_calibrate import take_profile
    from corelane.plugins.lab.generator import Target
    from corelane.plugins.lab.planning.profile import Limits
    from corelane.settings import read_settings

    settings = read_settings()
    key = api_key or (settings.api_key.get_secret_value() if settings.api_key is not None else None)
    limits = Limits(**{name: getattr(settings, name) for name in Limits.model_fields})
    console = error_console()
    with connect(url, key) as client:
        return take_profile(
            client,
            Target(client.base_url, key, model),
            questions_of(mix),
            seconds=seconds,
            limits=limits,
            cpus=cpus,
            instance=instance or settings.instance,
            on_step=lambda name, for_s: console.print(f"measuring {name}: {for_s:.0f} s"),
        )


def questions_of(mix: Path | None) -> "Questions":
    """Return the questions of a file, or some of even lengths where none is given."""
    from corelane.plugins.lab.planning.mix import default_questions
    from corelane.plugins.lab.workload import Questions, read_file
    from corelane.quality.squad import Question

    if mix is not None:
        return read_file(mix)
    asked = [Question(str(n), question, context, ()) for n, (question, context) in enumerate(default_questions())]
    return Questions(asked, "questions of even lengths")


def fields(found: "Profile") -> dict[str, object]:
    """Return what a reader wants to know of a profile."""
    seen = found.contention
    shapes = ", ".join(
        f"{shape.rows}x{shape.length} {1000 * (shape.base_s + shape.row_s):.1f}"
        f"–{1000 * (shape.base_s + shape.rows * shape.row_s):.1f}"
        for shape in found.shapes
    )
    return {
        "version": found.version,
        "target": " ".join(filter(None, (found.target, found.dtype, found.instance))),
        "batches": f"{shapes} ms with one row and full",
        "around": f"{1000 * (found.overhead.front_s + found.overhead.reply_s):.1f} ms, "
        f"{1000 * (seen.overhead.front_s + seen.overhead.reply_s):.1f} with all cores at work",
        "wake": f"{1000 * found.wake_s:.1f} ms, {1000 * found.asleep_s:.1f} from sleep",
        "stretch": f"{seen.stretch:.2f} with {seen.cores} cores at work at {seen.requests_per_s:.1f} requests/s",
        "noise": f"{found.noise:.0%}",
        "tokens": f"{found.tokens_ratio:.2f} for each one estimated",
    }
