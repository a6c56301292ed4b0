"""A process finds its kind of device: the one that it was placed on, if torch can use it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlinf.errors import MissingPackageError
from rlinf.scheduler.platform import torch_device_type


@pytest.mark.parametrize(("is_available", "expected"), [(True, "npu"), (False, "cpu")])
def test_a_worker_on_another_kind_uses_its_package(
    monkeypatch: pytest.MonkeyPatch, is_available: bool, expected: str
) -> None:
    monkeypatch.setenv("ACCELERATOR_TYPE", "NPU")
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    monkeypatch.setattr(torch, "npu", SimpleNamespace(is_available=lambda: is_available), raising=False)
    assert torch_device_type() == expected


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATOR_TYPE", "MUSA_GPU")
    monkeypatch.setitem(sys.modules, "torch_musa", None)
    with pytest.raises(MissingPackageError, match="torch_musa"):
        torch_device_type()


@pytest.mark.parametrize("placed", ["", "NO_ACCEL"])
def test_elsewhere_the_first_device_that_torch_can_use_is_taken(monkeypatch: pytest.MonkeyPatch, placed: str) -> None:
    monkeypatch.setenv("ACCELERATOR_TYPE", placed)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert torch_device_type() == "xpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert torch_device_type() == "cuda"
