"""From a model's name to an artifact on disk: check the request, plan, and build for the target.

Bad requests are refused before the model is loaded. For the CPU this file also chooses among the ways to compile:
``auto`` builds the best way of a trial, and the next one if that does not agree with the eager network.
"""

import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import get_args

import torch

from compile.ladder import Method, build_ladder
from compile.manifests import Toolchain, host_tools
from compile.model.loading import quiet_transformers
from compile.model.probes import fill_probe, make_probe
from compile.model.reference import runner_of
from compile.model.timing import one_thread
from compile.plan import FIRST_STEPS, BuildPlan, Report, make_plan
from compile.plugin import FormatGraph, TargetOptions, format_compilers, target_compilers
from compile.tasks.evaluation import EvalSet, F1Loss
from compile.torch.cpu import BYTES_PER_WEIGHT, COMPILER, CpuDtype, cast, compile_trace, compiler_args, serialise, trace
from compile.trial import Dtype, Trial, Way, dtype_of, rank_ways, run_trial
from compile.verify import TOLERANCES, first_in_agreement, holds, judge_f1
from corelane.artifacts.instructions import THIS_CPU, host_kind, instruction_sets, may_be_fast, rank_of, sets_up_to
from corelane.artifacts.manifest import Artifact, artifact_folders, read_artifact
from corelane.engine.backends.cpu import settle
from corelane.engine.backends.plugin import TORCHSCRIPT, added_formats, all_targets
from corelane.engine.backends.protocol import Pass
from corelane.engine.buckets import AUTO_BUCKETS, Bucket
from corelane.errors import ArtifactRefused, CompileFailed, SetupError
from corelane.errors.extras import install_command
from corelane.settings import Settings

AUTO = "auto"

#: The batch that a trial times: a common length, and enough rows for full speed within a few seconds.
TRIAL_ROWS, TRIAL_LENGTH = 4, 128

#: Points of F1 that int8 may cost if ``auto`` chose it.
MOST_LOST = 0.3


def build(
    source: str,
    *,
    settings: Settings,
    target: str = "cpu",
    buckets: str = AUTO_BUCKETS,
    dtype: str = AUTO,
    name: str | None = None,
    options: TargetOptions | None = None,
    report: Report = lambda *_: None,
    eval_set: EvalSet | None = None,
    format: str = AUTO,
    cpu_kind: str | None = None,
    task: str | None = None,
) -> Artifact:
    """Compile, verify and publish; raises CompileFailed, or ModelRefused if the model is at fault.

    ``options`` are for the compilers of some targets. With ``eval_set`` the loss of F1 is measured on its items
    instead of on the samples, on the CPU. With ``cpu_kind`` the artifact lies next to those for other kinds of CPU.
    Raises SetupError if a format's library is not installed.
    """
    options, root = options or TargetOptions(), settings.artifact_root
    with quiet_transformers(), one_thread():
        check_request(target, dtype, format, options)
        compiler = target_compilers().get(target)
        added_dtype = dtype if compiler is None else compiler.check(dtype, options)
        lone_rows = compiler is not None and compiler.lone_rows
        kind = check_kind(cpu_kind, target, dtype)
        plan = make_plan(
            source, buckets=buckets, name=name, report=report, target=target, lone_rows=lone_rows, task=task
        )
        if eval_set is not None and not plan.model.task.measures_loss:
            raise CompileFailed(f"F1 is not measured for {plan.model.task.name}: leave {eval_set.label} out")
        if compiler is not None:
            return compiler.build(plan, added_dtype, options, settings, report)
        if kind:
            check_company(plan, root, target)
        choice = choose_ways(plan, dtype, format, eval_set, report)
        return first_in_agreement(
            choice.ways, lambda way: build_ladder(plan, cpu_method(plan, choice, way, kind), root, report)
        )


def check_request(target: str, dtype: str, format: str, options: TargetOptions) -> None:
    """Check the options against each other and the target; raises CompileFailed or SetupError."""
    if target not in all_targets():
        raise CompileFailed(f"nothing compiles for target {target!r}; this build has: {', '.join(all_targets())}")
    takers = [name for name, compiler in target_compilers().items() if compiler.takes_options]
    if options.named and target not in takers:
        raise CompileFailed(
            f"{', '.join(options.named)} is for {', '.join(takers) or 'no target here'}, not for {target}"
        )
    known = (AUTO, TORCHSCRIPT, *(formats := added_formats()))
    if format not in known:
        raise CompileFailed(f"{format!r} is not a format; choose {', '.join(known)}")
    if format in formats and target != "cpu":
        raise CompileFailed(f"format {format} is for target cpu, not for {target}")
    if target != "cpu":
        return
    if dtype not in (AUTO, *get_args(Dtype)):
        raise CompileFailed(f"{dtype!r} is not a dtype; choose {AUTO}, {', '.join(get_args(Dtype))}")
    if not (candidates := choose_candidates(dtype, format, None)):
        raise CompileFailed(f"format {format} has no {dtype}: leave --format out")
    for name, _ in candidates:
        if name != TORCHSCRIPT and not formats[name].is_installed:
            raise SetupError(f"format {name} needs a library that is not installed: run `{install_command(name)}`")


def check_kind(cpu_kind: str | None, target: str, dtype: str) -> str:
    """Return the CPU kind to compile for, or an empty string if none was given.

    Raises CompileFailed if this CPU cannot run as that kind, or if dtypes would have to be measured for another kind.
    """
    if cpu_kind is None:
        return ""
    here = host_kind()
    kind = here if cpu_kind == THIS_CPU else cpu_kind
    if target != "cpu":
        raise CompileFailed(f"--cpu-kind is for target cpu, not for {target}")
    if not kind:
        raise CompileFailed("the kind of this CPU is not known, so it takes the artifact that is compiled without one")
    if rank_of(kind) > rank_of(here):
        raise CompileFailed(f"this CPU is no {kind}: compile for that kind on a machine that has it")
    if kind != here and dtype == AUTO:
        raise CompileFailed(f"a dtype cannot be measured here for {kind}: this CPU is {here}; give --dtype")
    return kind


def check_company(plan: BuildPlan, root: Path, target: str) -> None:
    """Raise CompileFailed if artifacts for other CPU kinds cut texts into other windows: results would differ."""
    longest = plan.ladder[-1].length
    for folder in artifact_folders(plan.destination(root, target).parent, target):
        with suppress(ArtifactRefused):
            others = read_artifact(folder).manifest.max_length
            if others != longest:
                raise CompileFailed(f"{folder} reads {others} tokens at a time: give --buckets that end there too")


@dataclass(frozen=True, slots=True)
class CpuChoice:
    """The ways to compile for the CPU, best first, and what is needed to choose among them and to judge them.

    ``trial`` is None unless ``auto`` chose. ``graphs`` holds the graphs in other formats.
    """

    ways: Sequence[Way]
    eval_set: EvalSet | None
    graphs: Mapping[Way, FormatGraph] = field(default_factory=dict)
    trial: Trial | None = None


def choose_ways(plan: BuildPlan, dtype: str, format: str, eval_set: EvalSet | None, report: Report) -> CpuChoice:
    """Return the way that was asked for, or hold a trial to choose."""
    steps = FIRST_STEPS + len(plan.ladder)
    tried: list[CpuDtype] = []
    graphs: dict[Way, FormatGraph] = {}
    gains: dict[Way, float] = {}
    for name, its in choose_candidates(dtype, format, eval_set):
        if name == TORCHSCRIPT:
            tried.append(typing.cast(CpuDtype, its))
            continue
        way, compiler = f"{name} {its}", format_compilers()[name]
        report(f"converting to {way}", 1, steps)
        try:
            graphs[way], gains[way] = compiler.make_graph(plan, its, eval_set), compiler.least_gains[its]
        except CompileFailed:
            if not tried:
                raise
    if len(ways := [*tried, *graphs]) < 2:
        return CpuChoice(ways, eval_set, graphs)
    report("trying dtypes", 1, steps)
    model = plan.model
    bucket = Bucket(length=min(TRIAL_LENGTH, plan.ladder[-1].length), rows=TRIAL_ROWS)
    probe = make_probe(model, bucket, plan.run_eager)
    _, [first, *_] = fill_probe(model.task, model.tokenizer, model.spec, plan.ladder[0])

    def compiled(dtype: CpuDtype) -> Pass:
        module = cast(plan.reference, dtype)
        traced = trace(module, first)
        if not holds(probe, runner_of(traced), runner_of(module)):
            traced = trace(module, probe.batches[0])
        return runner_of(settle(compile_trace(traced, dtype)))

    candidates: dict[Way, Callable[[], Pass]] = {each: partial(compiled, each) for each in tried}
    candidates |= {way: graph.run for way, graph in graphs.items()}
    trial = run_trial(probe, candidates)
    return CpuChoice(rank_ways(trial, gains, ways[0]), eval_set, graphs, trial)


def choose_candidates(dtype: str, format: str, eval_set: EvalSet | None) -> list[tuple[str, Dtype]]:
    """Return the formats and dtypes to try, TorchScript first: what was asked for, or what may be fast on this CPU.

    int8 is tried only if there is an eval set to judge it. A dtype that was asked for is compiled in one format.
    """
    compilers, formats = format_compilers(), added_formats()
    known: dict[str, Sequence[Dtype]] = {TORCHSCRIPT: get_args(CpuDtype)}
    known |= {name: list(each.least_gains) for name, each in compilers.items()}
    having = [(name, its) for name in known if format in (AUTO, name) for its in known[name] if dtype in (AUTO, its)]
    if dtype != AUTO:
        return having[:1]
    return [
        (name, its)
        for name, its in having
        if its == "fp32" or (may_be_fast(its) and (its != "int8" or eval_set is not None))
        if name in (TORCHSCRIPT, format) or formats[name].is_installed
    ]


def cpu_method(plan: BuildPlan, choice: CpuChoice, way: Way, kind: str) -> Method:
    """Return how to compile for the CPU in one way; ``kind`` places the artifact next to those for other kinds.

    TorchScript is traced again at lengths for which a trace does not hold; other formats have one graph for all.
    """
    dtype, graph = dtype_of(way), choice.graphs.get(way)
    sets = sets_up_to(kind) if kind else instruction_sets()
    tools = host_tools() | {"cpu": " ".join(sets) or torch.backends.cpu.get_cpu_capability()}
    method = partial(
        Method,
        label=way,
        cpu_kind=kind,
        bytes_per_weight=BYTES_PER_WEIGHT.get(dtype, 4),
        least_equal=TOLERANCES[dtype].equal,
        evaluate=partial(_evaluate, plan, choice, dtype) if plan.model.task.measures_loss else None,
    )
    made_by = partial(Toolchain, "cpu", dtype, trial={} if choice.trial is None else choice.trial.speeds)
    if graph is not None:
        return method(
            toolchain=made_by(
                graph.compiler,
                graph.arguments,
                tools | graph.tools,
                format=graph.format,
                extra_files=graph.extra_files,
            ),
            make=lambda _: graph,
            holds=lambda *_: True,
            write=lambda made, path: made.write(path),
            file=lambda _: graph.file,
        )
    own = typing.cast(CpuDtype, dtype)
    module = cast(plan.reference, own)
    return method(
        threads=True,
        toolchain=made_by(COMPILER, compiler_args(module.network, own), tools),
        make=partial(trace, module),
        holds=lambda probe, traced: holds(probe, runner_of(traced), runner_of(module)),
        write=lambda traced, path: path.write_bytes(serialise(compile_trace(traced, own))),
    )


def _evaluate(plan: BuildPlan, choice: CpuChoice, dtype: Dtype, run: Pass) -> F1Loss:
    """Measure the loss of F1; raises Disagreement if ``auto`` chose int8 and it loses too much."""
    model = plan.model
    loss = model.task.measure_loss(model.tokenizer, model.spec, plan.ladder, plan.run_eager, run, choice.eval_set)
    if choice.trial is not None and dtype == "int8":
        judge_f1(loss.points, MOST_LOST, dtype)
    return loss
