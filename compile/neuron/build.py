"""From a plan to a Neuron artifact: compile the buckets side by side, verify them on a core, publish.

What was compiled without a device (``cpu_backend``) cannot be run here: it is published as not verified, with the
logits it must give, and ``corelane verify`` does the rest where there is a device.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compile.cpu import runner_of
from compile.folder import building, publish_artifact
from compile.manifests import Toolchain, make_manifest
from compile.model import save_tokenizer
from compile.neuron.buckets import BucketJob, Step, compile_buckets
from compile.neuron.cache import Cache
from compile.neuron.checks import Checked, check_buckets, judge_all
from compile.neuron.children import Children
from compile.neuron.coverage import WHOLE, read_analysis
from compile.neuron.expected import keep_expected
from compile.neuron.options import NeuronOptions, Recipe, make_recipes
from compile.neuron.session import open_session
from compile.plan import FIRST_STEPS, Plan, Report
from compile.probes import Probe, make_probe
from compile.verify import Disagreement
from corelane.artifacts.manifest import TOKENIZER_NAME, Artifact, Coverage, artifact_path
from corelane.engine.backends.neuron.chips import Chip
from corelane.errors import CompileFailed
from corelane.settings import Settings


def build_for_neuron(
    plan: Plan, chip: Chip, dtype: str, options: NeuronOptions, settings: Settings, report: Report
) -> Artifact:
    """Compile, verify and publish; raises CompileFailed, or SetupError where this machine lacks something."""
    recipes = make_recipes(chip, dtype, options, count_weights(plan))
    with _children(options, settings) as children:
        versions = children.probe(chip)
        for recipe in recipes[:-1]:
            try:
                return _build(plan, recipe, options, settings, children, versions, report)
            except Disagreement:
                continue
        return _build(plan, recipes[-1], options, settings, children, versions, report)


def count_weights(plan: Plan) -> int:
    """The number of a network's weights."""
    return int(sum(parameter.numel() for parameter in plan.model.network.parameters()))


@contextmanager
def _children(options: NeuronOptions, settings: Settings) -> Iterator[Children]:
    children = Children(options.python, settings.environment())
    try:
        yield children
    finally:
        children.stop()


def _build(
    plan: Plan,
    recipe: Recipe,
    options: NeuronOptions,
    settings: Settings,
    children: Children,
    versions: dict[str, str],
    report: Report,
) -> Artifact:
    """Compile and verify the whole ladder by one recipe."""
    chip, root = recipe.chip, settings.artifact_root
    destination = artifact_path(root, plan.name, plan.model.source.version, chip.target)
    steps = FIRST_STEPS + 2 * len(plan.ladder)

    def step(text: str, done: int) -> None:
        report(text, done, steps)

    logs = settings.data_dir.resolve() / "compile-logs" / f"{plan.name}-{chip.target}"
    with building(root, needs_bytes(plan)) as aside, tempfile.TemporaryDirectory(prefix="corelane-compile-") as scratch:
        logs.mkdir(parents=True, exist_ok=True)
        save_tokenizer(plan.model, aside / TOKENIZER_NAME)
        probes = [make_probe(plan.model, bucket, runner_of(plan.reference)) for bucket in plan.ladder]
        job = BucketJob(plan, recipe, options, versions, aside, Path(scratch), logs)
        analysis = analyze(job, probes[0], children, step) if options.report else None
        cache = Cache(settings.data_dir.resolve() / "compile-cache") if options.cache else None
        made, coverages = compile_buckets(job, probes, children, cache, step)
        checked: list[Checked] = []
        if not options.cpu_backend:
            with open_session(children, chip, logs / "verify.log", recipe.cores) as session:
                checked = check_buckets(session, aside, made, probes, recipe.dtype, step)
            judge_all(checked, recipe.dtype)
        else:
            keep_expected(probes, aside)
        toolchain = Toolchain(
            target=chip.target,
            dtype=recipe.dtype,
            compiler=chip.compiler,
            compiler_args=[f"weights={recipe.weights}", *recipe.compiler_args],
            tools=versions,
            cores=recipe.cores,
            coverage=_least(coverages) if analysis is None else analysis,
            verified=not options.cpu_backend,
        )
        buckets = [each.bucket for each in checked] or made
        manifest = make_manifest(plan, toolchain, aside, buckets, [each.findings for each in checked])
        artifact = publish_artifact(aside, destination, manifest)
    report("done", steps, steps)
    return artifact


def analyze(job: BucketJob, probe: Probe, children: Children, step: Step) -> Coverage | None:
    """Try the operators one by one, before time is spent on whole graphs; None where the trace itself counts them.

    Raises CompileFailed naming the operators that the compiler does not take.
    """
    if job.recipe.chip.package == "torch_neuron":
        return None
    step("trying the operators one by one", FIRST_STEPS - 1)
    spec = job.spec(job.plan.ladder[0], probe, "analyze")
    found = children.work("analyze", spec, job.recipe.chip, "the operator report", job.logs / "analyze.log")
    coverage = read_analysis(found["analysis"])
    if coverage.not_compiled:
        operators = ", ".join(f"{name} ({coverage.reasons[name]})" for name in coverage.not_compiled)
        raise CompileFailed(
            f"{job.recipe.chip.compiler} does not take {operators}; it supports {coverage.percent:g}% of the operators"
        )
    return coverage


def _least(coverages: Sequence[Coverage | None]) -> Coverage:
    """The coverage of the bucket that has the least."""
    return min((each or WHOLE for each in coverages), key=lambda coverage: coverage.percent)


def needs_bytes(plan: Plan) -> int:
    """About what an artifact takes: a file and a NEFF, each with the weights, for every bucket."""
    return 2 * 4 * count_weights(plan) * len(plan.ladder)
