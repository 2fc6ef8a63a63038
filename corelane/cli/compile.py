"""``corelane compile`` and ``corelane models verify``, with a progress bar and a table of the results."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from compile.tasks.task import COMPILED
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.instructions import FAST_BY, THIS_CPU, host_kind, instruction_sets
from corelane.artifacts.manifest import Artifact, Coverage, Manifest, check_files, model_name
from corelane.cli.errors import require, unwound_by_sigterm
from corelane.cli.fleet import models
from corelane.cli.folders import DataOption, writable_folder
from corelane.cli.options import choice
from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.engine.backends.plugin import TORCHSCRIPT, added_formats, all_targets
from corelane.engine.buckets import AUTO_BUCKETS
from corelane.errors import ArtifactRefused, CompileFailed
from corelane.settings import Settings, read_settings

#: The values of `--format`.
FORMATS = ("auto", TORCHSCRIPT, *added_formats())

#: The heading in the help for the options of Neuron targets.
NEURON = "Neuron targets (inf1, inf2, trn1, trn2, trn3)"

NeuronPython = Annotated[
    str | None,
    typer.Option(
        "--neuron-python",
        help="Python that has the Neuron packages, if not this one; for inf1 that of CORELANE_NEURON_PYTHON.",
        rich_help_panel=NEURON,
    ),
]


def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, local folder or Hugging Face id.")],
    target: Annotated[str, choice(all_targets(), "What to compile for.")] = "cpu",
    task: Annotated[
        str | None, choice(COMPILED, "What the model is to do, where its head does not say it, as zero-shot.")
    ] = None,
    buckets: Annotated[
        str,
        typer.Option(
            help="Shapes, ROWSxLENGTH, comma-separated; auto: 16x64 to what the model reads, 1x8192 at most "
            "(questions: 3x384); for Neuron to 2x512, and 1x128 to 1x512; elsewhere 64x16 and 32x32 for single texts."
        ),
    ] = AUTO_BUCKETS,
    dtype: Annotated[
        Literal["auto", "fp32", "bf16", "fp16", "int8"],
        typer.Option(help="Number format; auto measures which is fastest here (fp16: Neuron, GPUs; int8: CPU)."),
    ] = "auto",
    format: Annotated[str, choice(FORMATS, "What the files are (CPU); auto tries all with --questions.")] = "auto",
    name: Annotated[str | None, typer.Option(help="Name to serve it under; the model's own if not given.")] = None,
    cpu_kind: Annotated[
        Literal["this", "avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"] | None,
        typer.Option(help="Compile for this kind of CPU, beside the version's artifacts for others."),
    ] = None,
    questions: Annotated[
        Path | None,
        typer.Option(help="SQuAD-format file with answers: the loss of F1 is measured on it, and bounds int8."),
    ] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if it is compiled already.")] = False,
    compiler_args: Annotated[
        str, typer.Option(help="Arguments for the compiler, passed as they are.", rich_help_panel=NEURON)
    ] = "",
    pipeline_cores: Annotated[
        int | None, typer.Option(min=1, help="Cores to lay one model over; inf1 only.", rich_help_panel=NEURON)
    ] = None,
    cpu_backend: Annotated[
        bool,
        typer.Option(
            "--cpu-backend",
            help="Compile without a device; `corelane models verify` is then due where there is one.",
            rich_help_panel=NEURON,
        ),
    ] = False,
    coverage: Annotated[
        bool, typer.Option("--report", help="Find and print the operator coverage.", rich_help_panel=NEURON)
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Buckets compiled at a time; as memory allows.", rich_help_panel=NEURON),
    ] = None,
    cache: Annotated[
        bool,
        typer.Option("--cache/--no-cache", help="Reuse buckets that were compiled before.", rich_help_panel=NEURON),
    ] = True,
    neuron_python: NeuronPython = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a model, verify it against the original, and keep it for the workers."""
    settings = read_settings(data_dir=data)
    served_as = name or model_name(model)
    if if_missing and (known := compiled(settings, served_as, target, cpu_kind)) is not None:
        if as_json:
            print_line(essentials(known))
        return
    require("compile", "torch", "transformers", "tokenizers")
    from compile.plugin import TargetOptions
    from compile.tasks.feature_extraction.packaged import source_of

    options = TargetOptions(
        compiler_args=compiler_args,
        pipeline_cores=pipeline_cores,
        cpu_backend=cpu_backend,
        report=coverage,
        jobs=jobs,
        cache=cache,
        python=neuron_python,
    )
    writable_folder(settings.artifact_root)
    from compile.build import build
    from compile.tasks.question_answering.evaluation import read_eval_set

    with unwound_by_sigterm(), show_progress() as report:
        artifact = build(
            source_of(model, settings),
            settings=settings,
            target=target,
            buckets=buckets,
            dtype=dtype,
            format=format,
            name=name,
            task=task,
            options=options,
            eval_set=None if questions is None else read_eval_set(questions),
            cpu_kind=cpu_kind,
            report=report,
        )
    show_made(artifact, with_coverage=coverage, as_json=as_json)


def show_made(artifact: Artifact, *, with_coverage: bool, as_json: bool) -> None:
    """Print what was compiled, and how it is served."""
    if as_json:
        print_line(essentials(artifact))
        return
    console = Console(highlight=False, soft_wrap=True)
    show_artifact(artifact, console)
    console.print(f"a service on this folder serves it after: corelane models load {artifact.manifest.name}")
    if with_coverage and artifact.manifest.coverage is not None:
        show_coverage(artifact.manifest.coverage, console)


@models.command()
def verify(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name it is served under, or name@version.")],
    target: Annotated[str, choice(all_targets(), "What it was compiled for.")],
    neuron_python: NeuronPython = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify, on this machine's device, what was compiled without one (`corelane compile --cpu-backend`)."""
    settings = read_settings(data_dir=data)
    require("neuron", "torch", "tokenizers")
    from compile.plugin import target_compilers

    if (compiler := target_compilers().get(target)) is None:
        raise CompileFailed(f"artifacts for {target} are verified when they are compiled")
    with unwound_by_sigterm(), show_progress() as report:
        artifact = compiler.verify(model, settings, report, neuron_python)
    show_made(artifact, with_coverage=False, as_json=as_json)


@contextmanager
def show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar on standard error during the block; yield the function that moves it."""
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda text, done, total: progress.update(task, description=text, completed=done, total=total)


def compiled(settings: Settings, name: str, target: str, cpu_kind: str | None = None) -> Artifact | None:
    """Return the intact artifact of ``name`` for this host, or, if given, just for ``cpu_kind``; None without one."""
    kind = host_kind(settings.cpu_kind) if cpu_kind in (None, THIS_CPU) else str(cpu_kind)
    try:
        artifact = find_artifact(settings.artifact_root, name, target, kind=kind)
        check_files(artifact)
    except ArtifactRefused:
        return None
    return artifact if cpu_kind is None or artifact.manifest.cpu_kind == kind else None


#: The fields of a manifest that programs get: all but those used only to check and feed the model.
ESSENTIALS = set(Manifest.model_fields) - {"schema_version", "source_digest", "compiler_args", "tokenizer", "files"}


def essentials(artifact: Artifact) -> dict[str, Any]:
    """Return an artifact for a program: most of its manifest, and its folder."""
    manifest = artifact.manifest
    shown = {"id": manifest.version_id, "path": str(artifact.path), "bytes": manifest.bytes}
    return shown | manifest.model_dump(mode="json", include=ESSENTIALS)


def show_artifact(artifact: Artifact, console: Console) -> None:
    """Print the buckets of an artifact, and its measurements."""
    manifest = artifact.manifest
    kind = manifest.dtype if manifest.format == TORCHSCRIPT else f"{manifest.format} {manifest.dtype}"
    table = Table(title=f"{manifest.version_id}, {kind} for {manifest.target}", title_justify="left")
    for heading in ("bucket", "seconds", "MB", "ms per batch", "seq/s", "max |Δlogit|"):
        table.add_column(heading, justify="right")
    for bucket in manifest.buckets:
        speed = f"{1000 * bucket.rows / bucket.batch_ms:.0f}" if bucket.batch_ms else "–"
        measured = (f"{bucket.batch_ms:.1f}", speed, f"{bucket.max_logit_error:.2g}")
        compiled = (f"{bucket.rows}x{bucket.length}", f"{bucket.compile_s:.1f}", f"{bucket.bytes / 1e6:.1f}")
        table.add_row(*compiled, *(measured if manifest.verified else ("–", "–", "–")))
    console.print(table)
    if manifest.trial:
        console.print(f"{shown_trial(manifest.trial)}; {kind} serves")
    if manifest.f1_questions and manifest.dtype != "int8" and set(FAST_BY["int8"]) & set(instruction_sets()):
        console.print("int8 may be faster on this CPU: `--dtype int8 --questions FILE` compiles it and says its loss")
    if manifest.cores > 1:
        console.print(f"one copy of the model takes {manifest.cores} neighbouring cores")
    if manifest.verified:
        console.print(f"sample answers equal to the eager model's: {manifest.answers_equal:.0%}")
    else:
        again = f"corelane models verify {manifest.name} --target {manifest.target}"
        console.print(f"not verified, for lack of a device: run `{again}` where it will serve", style="yellow")
    if manifest.f1_questions:
        over = f"{manifest.f1_questions} questions of {manifest.f1_source}"
        console.print(f"F1 lost against the eager model: {manifest.f1_loss:.2f} points, over {over}")
    if manifest.cpu_kind:
        console.print(f"chosen for CPUs of kind {manifest.cpu_kind}")
    console.print(f"kept in {artifact.path}")


def shown_trial(speeds: Mapping[str, float]) -> str:
    """Say what `auto` tried, and how fast it was."""
    return "tried on one core, sequences/s: " + ", ".join(f"{way} {speed:.1f}" for way, speed in speeds.items())


#: The ways to find a coverage, in words.
FOUND_BY = {
    "trace": "compiled in one piece",
    "log": "by the compiler's own count",
    "analyze": "by trying the operators one by one",
}


def show_coverage(coverage: Coverage, console: Console) -> None:
    """Print which operators the compiler took, and which stay on the CPU."""
    console.print(f"operators compiled: {coverage.percent:g} %, {FOUND_BY[coverage.found_by]}")
    if not coverage.compiled and not coverage.not_compiled:
        return
    table = Table("operator", "compiled", "on the CPU", "why")
    for operators, column in ((coverage.not_compiled, 1), (coverage.compiled, 0)):
        for name, count in sorted(operators.items(), key=lambda each: (-each[1], each[0])):
            counts = ("", str(count)) if column else (str(count), "")
            table.add_row(name, *counts, coverage.reasons.get(name, ""))
    console.print(table)
