"""Which accelerators of a node its processes may use: those that the variable of their kind names, or all of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rlinf.errors import ClusterError
from rlinf.placement.accelerator_kinds import ACCELERATOR_KINDS, AcceleratorKind
from rlinf.placement.records import AcceleratorType

# A driver that hangs must not hang the cluster's start.
_LISTING_TIMEOUT_SECONDS = 60
# What hides every GPU: an index that no GPU has, and a container runtime's word for none.
_HIDE_ALL = frozenset({"", "-1", "NoDevFiles"})


@dataclass(frozen=True)
class Accelerator:
    """One device of a node.

    Attributes:
        id: What the variable of its kind (``CUDA_VISIBLE_DEVICES``) calls it: an index, the UUID of a GPU or that of a
            MIG device.
        model: Its model.
    """

    id: str
    model: str


@dataclass(frozen=True)
class NodeAccelerators:
    """The accelerators of a node that its processes may use.

    Attributes:
        type: Their kind; ``NO_ACCEL`` for none.
        devices: In local order.
    """

    type: AcceleratorType
    devices: tuple[Accelerator, ...]


def find_accelerators(
    visible: Mapping[str, str], read_listing: Callable[[AcceleratorKind], Sequence[str]] | None = None
) -> NodeAccelerators:
    """Return the accelerators of this node: of the first kind of the table that it has.

    Args:
        visible: Values of the variables that limit what processes see; one that is missing means all devices.
        read_listing: Returns the lines that the command of a kind prints; None runs it.

    Raises:
        ClusterError: A variable names a device that the node does not have, or one twice.
    """
    for kind in ACCELERATOR_KINDS:
        listing = (read_listing or _read_listing)(kind)
        if not any(re.fullmatch(kind.device, line.rstrip()) for line in listing):
            continue
        value = next((visible[name] for name in kind.visible_variables if name in visible), None)
        devices = select_accelerators(value, listing, kind)
        return NodeAccelerators(kind.type if devices else AcceleratorType.NO_ACCEL, devices)
    return NodeAccelerators(AcceleratorType.NO_ACCEL, ())


def select_accelerators(
    visible: str | None, listing: Sequence[str], kind: AcceleratorKind = ACCELERATOR_KINDS[0]
) -> tuple[Accelerator, ...]:
    """Return the accelerators that ``visible`` names, in its order.

    Args:
        visible: Value of the variable of the kind; None means all devices.
        listing: What the command of the kind prints.
        kind: The kind; by default CUDA.

    Raises:
        ClusterError: As ``find_accelerators``.
    """
    devices: list[Accelerator] = []
    models: dict[str, str] = {}
    for line in listing:
        match = re.fullmatch(kind.device, line.rstrip())
        if match:
            devices.append(Accelerator(match["index"], match["model"]))
            models[match["index"]] = match["model"]
        elif kind.part:
            match = re.fullmatch(kind.part, line.rstrip())
        uuid = match.groupdict().get("uuid") if match else None
        if match and uuid:
            models[uuid] = match["model"]
    if visible is None or not devices:
        return tuple(devices)
    if visible.strip() in _HIDE_ALL:
        return ()
    ids = [entry.strip() for entry in visible.split(",")]
    found = [_full_id(entry, models) for entry in ids]
    if None in found or len(set(found)) < len(found):
        raise ClusterError(
            f"{kind.visible_variables[0]}={visible}: must name GPUs of this node, each once; it has: "
            f"{', '.join(models)}. Correct the variable (on another node than the driver's, before `ray start`), or "
            "unset it to use all GPUs."
        )
    return tuple(Accelerator(entry, models[entry]) for entry in found if entry is not None)


def _full_id(entry: str, models: dict[str, str]) -> str | None:
    """Return the device that an entry names, also by the unambiguous beginning of its UUID; None if there is none."""
    if entry in models:
        return entry
    matching = [known for known in models if not known.isdigit() and known.startswith(entry)] if entry else []
    return matching[0] if len(matching) == 1 else None


def _read_listing(kind: AcceleratorKind) -> list[str]:
    """Return the lines that the command of a kind prints, [] where its driver is not installed."""
    program, *arguments = kind.listing
    tool = shutil.which(program)
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, timeout=_LISTING_TIMEOUT_SECONDS, check=True
        )
    except (subprocess.SubprocessError, OSError):
        return []
    return done.stdout.splitlines()
