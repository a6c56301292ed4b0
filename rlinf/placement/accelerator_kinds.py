"""Kinds of accelerators as a table: how they are listed, hidden from processes, and named by torch.

CUDA is what this project is tested on. The other rows say what their vendors document; they are tested with recorded
listings alone, and are unproven on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.placement.records import AcceleratorType


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorKind:
    """How one kind of accelerator is found and used.

    Attributes:
        type: Its name in placements and in ``ACCELERATOR_TYPE``.
        listing: The command that prints a node's devices.
        device: Pattern of a line that is a device: ``index``, ``model``, and where they have one, ``uuid``.
        part: Pattern of a line that is a part of the device above it: ``model`` and ``uuid``; empty for none.
        visible_variables: Variables that limit what a process sees; the first that is set is read, all are written.
        torch_device: Torch's name for it.
        collective_backend: Backend of ``torch.distributed`` for its tensors.
        interface_variable: Names the network interface of that backend.
        torch_package: What has to be imported before torch knows the device; empty where torch brings it.
    """

    type: AcceleratorType
    listing: tuple[str, ...]
    device: str
    part: str = ""
    visible_variables: tuple[str, ...]
    torch_device: str
    collective_backend: str
    interface_variable: str
    torch_package: str = ""


ACCELERATOR_KINDS: tuple[AcceleratorKind, ...] = (
    AcceleratorKind(
        type=AcceleratorType.NV_GPU,
        listing=("nvidia-smi", "-L"),
        device=r"GPU (?P<index>\d+): (?P<model>.+?)(?: \(UUID: (?P<uuid>[^)]+)\))?",
        part=r"\s+(?P<model>MIG \S+)\s+Device\s+\d+: \(UUID: (?P<uuid>[^)]+)\)",
        visible_variables=("CUDA_VISIBLE_DEVICES",),
        torch_device="cuda",
        collective_backend="nccl",
        interface_variable="NCCL_SOCKET_IFNAME",
    ),
    AcceleratorKind(
        type=AcceleratorType.AMD_GPU,
        listing=("rocm-smi", "--showproductname", "--csv"),
        device=r"card(?P<index>\d+),(?P<model>[^,]+).*",
        visible_variables=("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
        # PyTorch for ROCm has the names of CUDA; its "nccl" is RCCL.
        torch_device="cuda",
        collective_backend="nccl",
        interface_variable="NCCL_SOCKET_IFNAME",
    ),
    AcceleratorKind(
        type=AcceleratorType.NPU,
        listing=("npu-smi", "info", "-m"),
        device=r"\s*\d+\s+\d+\s+(?P<index>\d+)\s+(?P<model>Ascend.*?)\s*",
        visible_variables=("ASCEND_RT_VISIBLE_DEVICES",),
        torch_device="npu",
        collective_backend="hccl",
        interface_variable="HCCL_SOCKET_IFNAME",
        torch_package="torch_npu",
    ),
    AcceleratorKind(
        type=AcceleratorType.INTEL_GPU,
        listing=("xpu-smi", "discovery", "--dump", "1,2"),
        device=r'(?P<index>\d+),"?(?P<model>[^"]+)"?',
        visible_variables=("ZE_AFFINITY_MASK",),
        torch_device="xpu",
        collective_backend="xccl",
        interface_variable="CCL_KVS_IFACE",
    ),
    AcceleratorKind(
        type=AcceleratorType.MUSA_GPU,
        listing=("mthreads-gmi", "-L"),
        device=r"GPU (?P<index>\d+): (?P<model>.+?)(?: \(UUID: (?P<uuid>[^)]+)\))?",
        visible_variables=("MUSA_VISIBLE_DEVICES",),
        torch_device="musa",
        collective_backend="mccl",
        interface_variable="MCCL_SOCKET_IFNAME",
        torch_package="torch_musa",
    ),
)
"""The kinds, in the order in which a node is searched for them: the first that it has is used."""

VISIBLE_VARIABLES = tuple(dict.fromkeys(name for kind in ACCELERATOR_KINDS for name in kind.visible_variables))
"""All variables that limit what a process sees."""


def kind_of(accelerator_type: AcceleratorType | str) -> AcceleratorKind | None:
    """Return the row of a type; None for ``NO_ACCEL``."""
    return next((kind for kind in ACCELERATOR_KINDS if kind.type == accelerator_type), None)


def collective_backend(torch_device: str) -> str | None:
    """Return the backend of ``torch.distributed`` for a device by its name in torch; None for the CPU."""
    return next((kind.collective_backend for kind in ACCELERATOR_KINDS if kind.torch_device == torch_device), None)
