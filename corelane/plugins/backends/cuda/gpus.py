"""The NVIDIA GPUs of this machine, listed by its driver and not by CUDA, which only a worker's child may use."""

import re
import subprocess

from corelane.errors import SetupError

#: Longest wait for ``nvidia-smi``, in seconds. It responds within a second or two, even if its driver must wake up.
LIST_S = 20

GPU_LINE = re.compile(r"^GPU \d+: .+ \(UUID: (GPU-[0-9a-fA-F-]+)\)\s*$", re.MULTILINE)


def find_gpus() -> list[str]:
    """List the GPUs' UUIDs, which do not depend on CUDA's order; raises SetupError if there is none."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=LIST_S, check=True)  # noqa: S607  # where the driver put it
    except FileNotFoundError:
        raise SetupError("there is no `nvidia-smi` here, so no NVIDIA driver: target cuda needs a GPU") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"`nvidia-smi -L` fails ({error}): see to the NVIDIA driver") from None
    uuids = read_listing(listing.stdout)
    if not uuids:
        raise SetupError("`nvidia-smi -L` lists no GPU; target cuda needs one")
    return uuids


def read_listing(text: str) -> list[str]:
    """Return the UUIDs in the output of ``nvidia-smi -L``. A GPU's slices (MIG) are not listed separately."""
    return GPU_LINE.findall(text)
