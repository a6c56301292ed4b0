"""Peaks of known devices, and memory that grows with what is held."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.telemetry.devices import device_peak_flops, peak_flops, pop_peak_memory_bytes


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H200", 989.5),
        ("NVIDIA GH200 480GB", 989.5),
        ("NVIDIA A800-SXM4-80GB", 312.0),
        ("NVIDIA A40", 149.7),
        ("NVIDIA H20", 148.0),
        ("NVIDIA GB200", 2500.0),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
    ],
)
def test_a_variant_is_not_taken_for_what_its_name_contains(name: str, tflops: float) -> None:
    assert peak_flops(name, "bf16") == peak_flops(name, "fp16") == tflops * 1e12


def test_what_is_not_known_has_no_peak() -> None:
    assert peak_flops("Some Device 1", "bf16") is None
    assert peak_flops("NVIDIA RTX A1000", "bf16") is None
    assert peak_flops("NVIDIA H100 80GB HBM3", "fp32") is None
    assert device_peak_flops(torch.device("cpu"), "bf16") is None


def test_the_peak_of_memory_is_that_of_the_process_in_bytes() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc")
    held = bytes(64 << 20)  # and freed: the peak remains
    del held
    found = pop_peak_memory_bytes(torch.device("cpu"))
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    assert found == pytest.approx(int(line.split()[1]) * 1024, rel=0.02)
