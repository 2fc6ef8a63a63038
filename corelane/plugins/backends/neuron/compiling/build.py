"""Build a Neuron artifact: compile the buckets in parallel, verify them on a core, publish.

Buckets compiled without a device (``cpu_backend``) cannot run here. They are published as not verified, with the logits
that they must give. ``corelane models verify`` then verifies them on a machine with a device.
"""

import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from compile.manifests import Toolchain, make_manifest
from compile.model.adapt import changes_of
from compile.model.loading import save_files
from compile.model.probes import Probe, make_probe
from compile.plan import FIRST_STEPS, BuildPlan, Report, Step
from compile.plugin import TargetOptions
from compile.publish import building, publish_artifact
from compile.verify import BucketComparison, first_in_agreement
from corelane.artifacts.manifest import Artifact, Coverage
from corelane.errors import CompileFailed
from corelane.plugins.backends.neuron.chips import NeuronChip
from corelane.plugins.backends.neuron.compiling.buckets import BucketJob, compile_buckets
from corelane.plugins.backends.neuron.compiling.cache import Cache
from corelane.plugins.backends.neuron.compiling.children import Children
from corelane.plugins.backends.neuron.compiling.coverage import WHOLE, read_analysis
from corelane.plugins.backends.neuron.compiling.expected import EXPECTED_NAME, keep_expected
from corelane.plugins.backends.neuron.compiling.on_device import open_session, verify_buckets, verify_on_device
from corelane.plugins.backends.neuron.compiling.options import NeuronRecipe, make_recipes
from corelane.plugins.backends.settings import BackendsFields
from corelane.settings import Settings

#: Bytes of a weight in an artifact, roughly: each bucket has it in fp32 in a file and in a NEFF.
BYTES_PER_WEIGHT = 2 * 4


class NeuronCompiler:
    """Compiles for one kind of chip, with AWS' tracing package in processes of its own."""

    lone_rows = takes_options = True

    def __init__(self, chip: NeuronChip) -> None:
        self._chip = chip

    def check(self, dtype: str, options: TargetOptions) -> str:
        """Return the dtype; raises CompileFailed if the chip's compiler does not accept the dtype or the options."""
        make_recipes(self._chip, dtype, options)
        return dtype

    def build(
        self, plan: BuildPlan, dtype: str, options: TargetOptions, settings: Settings, report: Report
    ) -> Artifact:
        """Compile, verify and publish."""
        return build_for_neuron(plan, self._chip, dtype, options, settings, report)

    def verify(self, name: str, settings: Settings, report: Report, python: str | None) -> Artifact:
        """Verify what was compiled without a device."""
        return verify_on_device(name, self._chip, settings, report, python or python_for(self._chip, settings))


def python_for(chip: NeuronChip, settings: Settings) -> str:
    """Return the Python that has the packages of a chip: this one, or another for inf1."""
    return settings.of(BackendsFields).neuron_python if chip.package == "torch_neuron" else sys.executable


def build_for_neuron(
    plan: BuildPlan, chip: NeuronChip, dtype: str, options: TargetOptions, settings: Settings, report: Report
) -> Artifact:
    """Compile, verify and publish; raises CompileFailed, or SetupError if this machine lacks something."""
    if changes_of(plan.model.network):
        kind = plan.model.network.config.model_type
        raise CompileFailed(f"{kind} is compiled in a changed form, which only targets cpu and cuda have")
    recipes = make_recipes(chip, dtype, options)
    with closing(Children(options.python or python_for(chip, settings), settings.environment())) as children:
        versions = children.probe(chip)
        return first_in_agreement(
            recipes, lambda recipe: _build(plan, recipe, options, settings, children, versions, report)
        )


def _build(
    plan: BuildPlan,
    recipe: NeuronRecipe,
    options: TargetOptions,
    settings: Settings,
    children: Children,
    versions: dict[str, str],
    report: Report,
) -> Artifact:
    """Compile and verify the whole ladder by one recipe."""
    chip, root, data = recipe.chip, settings.artifact_root, settings.data_dir.resolve()
    steps = FIRST_STEPS + 2 * len(plan.ladder)

    def step(text: str, done: int) -> None:
        report(text, done, steps)

    logs = data / "compile-logs" / f"{plan.name}-{chip.target}"
    needed = plan.model.weights * BYTES_PER_WEIGHT * len(plan.ladder)
    with building(root, needed) as aside, tempfile.TemporaryDirectory(prefix="corelane-compile-") as scratch:
        logs.mkdir(parents=True, exist_ok=True)
        save_files(plan.model, aside)
        probes = [make_probe(plan.model, bucket, plan.run_eager) for bucket in plan.ladder]
        job = BucketJob(plan, recipe, options, versions, aside, Path(scratch), logs)
        analysis = analyze(job, probes[0], children, step) if options.report else None
        cache = Cache(data / "compile-cache") if options.cache else None
        buckets, coverages = compile_buckets(job, probes, children, cache, step)
        compared: list[BucketComparison] = []
        if options.cpu_backend:
            keep_expected(probes, aside)
        else:
            with open_session(children, chip, logs / "verify.log", recipe.cores) as session:
                buckets, compared = verify_buckets(session, aside, buckets, probes, recipe.dtype, step)
        toolchain = Toolchain(
            target=chip.target,
            dtype=recipe.dtype,
            compiler=chip.compiler,
            compiler_args=[f"weights={recipe.weights}", *recipe.compiler_args],
            tools=versions,
            cores=recipe.cores,
            coverage=_least(coverages) if analysis is None else analysis,
            verified=not options.cpu_backend,
            extra_files=(EXPECTED_NAME,) if options.cpu_backend else (),
        )
        manifest = make_manifest(plan, toolchain, aside, buckets, compared)
        artifact = publish_artifact(aside, plan.destination(root, chip.target), manifest, plan.model.source.folder)
    report("done", steps, steps)
    return artifact


def analyze(job: BucketJob, probe: Probe, children: Children, step: Step) -> Coverage | None:
    """Try the operators one by one, before time is spent on whole graphs.

    Returns None for a compiler that counts operators in the log of each trace. Raises CompileFailed naming the
    operators that the compiler does not support.
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
    """Return the smallest coverage of all buckets."""
    return min((each or WHOLE for each in coverages), key=lambda coverage: coverage.percent)
