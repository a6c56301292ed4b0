"""Which accelerators of a node its processes may use: those that ``CUDA_VISIBLE_DEVICES`` names, or all of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.errors import ClusterError

CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"

# A driver that hangs must not hang the cluster's start.
_NVIDIA_SMI_TIMEOUT_SECONDS = 60
_GPU_LINE = re.compile(r"GPU (?P<index>\d+): (?P<model>.+?)(?: \(UUID: (?P<uuid>[^)]+)\))?")
_MIG_LINE = re.compile(r"\s+(?P<model>MIG \S+)\s+Device\s+\d+: \(UUID: (?P<uuid>[^)]+)\)")
# What hides every GPU: an index that no GPU has, and a container runtime's word for none.
_HIDE_ALL = frozenset({"", "-1", "NoDevFiles"})


@dataclass(frozen=True)
class Accelerator:
    """One device of a node.

    Attributes:
        id: What ``CUDA_VISIBLE_DEVICES`` calls it: an index, the UUID of a GPU or that of a MIG device.
        model: Its model.
    """

    id: str
    model: str


def find_accelerators(visible: str | None) -> tuple[Accelerator, ...]:
    """Return the accelerators of this node in local order.

    Args:
        visible: ``CUDA_VISIBLE_DEVICES`` of the node; None means all GPUs.

    Raises:
        ClusterError: ``visible`` names a device that the node does not have, or one twice.
    """
    return select_accelerators(visible, _nvidia_listing())


def select_accelerators(visible: str | None, listing: Sequence[str]) -> tuple[Accelerator, ...]:
    """Return the accelerators that ``visible`` names, in its order.

    Args:
        visible: As for ``find_accelerators``.
        listing: The lines of ``nvidia-smi -L``.

    Raises:
        ClusterError: As ``find_accelerators``.
    """
    gpus: list[Accelerator] = []
    models: dict[str, str] = {}
    for line in listing:
        if match := _GPU_LINE.fullmatch(line.rstrip()):
            gpus.append(Accelerator(match["index"], match["model"]))
            models[match["index"]] = match["model"]
        else:
            match = _MIG_LINE.fullmatch(line.rstrip())
        if match and match["uuid"]:
            models[match["uuid"]] = match["model"]
    if visible is None or not gpus:
        return tuple(gpus)
    if visible.strip() in _HIDE_ALL:
        return ()
    ids = [entry.strip() for entry in visible.split(",")]
    found = [_full_id(entry, models) for entry in ids]
    if None in found or len(set(found)) < len(found):
        raise ClusterError(
            f"{CUDA_VARIABLE}={visible}: must name GPUs of this node, each once; it has: {', '.join(models)}. Correct "
            "the variable (on another node than the driver's, before `ray start`), or unset it to use all GPUs."
        )
    return tuple(Accelerator(entry, models[entry]) for entry in found if entry is not None)


def _full_id(entry: str, models: dict[str, str]) -> str | None:
    """Return the device that an entry names, also by the unambiguous beginning of its UUID; None if there is none."""
    if entry in models:
        return entry
    matching = [known for known in models if not known.isdigit() and known.startswith(entry)] if entry else []
    return matching[0] if len(matching) == 1 else None


def _nvidia_listing() -> list[str]:
    """Return what nvidia-smi lists, [] where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=_NVIDIA_SMI_TIMEOUT_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return []
    return answer.stdout.splitlines()
