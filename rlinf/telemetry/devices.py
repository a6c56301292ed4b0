"""What accelerators can do at most, and how much memory a process has taken."""

from __future__ import annotations

import re
import resource
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PEAK_TFLOPS: tuple[tuple[str, float], ...] = (
    ("GB200", 2500.0),
    ("B200", 2250.0),
    ("GH200", 989.5),
    ("H200", 989.5),
    ("H100 PCIe", 756.5),
    ("H100 NVL", 835.5),
    ("H100", 989.5),
    ("H800", 989.5),
    ("H20", 148.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("A40", 149.7),
    ("A10G", 70.0),
    ("A10", 125.0),
    ("L40S", 362.0),
    ("L40", 181.0),
    ("L4", 121.0),
    ("RTX 4090", 165.2),
    ("RTX 3090", 71.0),
)
"""Dense matrix products in bf16 or fp16 with fp32 sums, by words of the device's name, from the makers' data sheets;
the first that occurs counts, so that a variant comes before what its name begins with."""


def peak_flops(device_name: str, precision: str) -> float | None:
    """Return the operations per second that a device is made for; None where they are not known.

    Args:
        device_name: As torch reports it, ``NVIDIA H100 80GB HBM3`` for example.
        precision: Of the matrix products; only ``bf16`` and ``fp16`` are known, as fp32 has many ways to be computed.
    """
    if precision not in {"bf16", "fp16"}:
        return None
    known = (tflops for part, tflops in _PEAK_TFLOPS if re.search(rf"\b{part}\b", device_name, re.IGNORECASE))
    tflops = next(known, None)
    return None if tflops is None else tflops * 1e12


def device_peak_flops(device: torch.device, precision: str) -> float | None:
    """Return ``peak_flops`` of a device of this process; None on the CPU."""
    import torch

    return peak_flops(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None


def pop_peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory that this process has held, and start again where that can be.

    Args:
        device: On an accelerator, what torch has allocated there since the last call; what child processes, or other
            libraries than torch, hold is not in it. On the CPU the largest resident set since the process began.
    """
    import torch

    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
