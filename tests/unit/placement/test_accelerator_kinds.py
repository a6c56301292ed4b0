"""The table of accelerators: each kind has a row, and its names are those of torch."""

from __future__ import annotations

import re

import pytest

from rlinf.placement import AcceleratorType
from rlinf.placement.accelerator_kinds import ACCELERATOR_KINDS, VISIBLE_VARIABLES, collective_backend, kind_of


def test_each_type_has_one_row() -> None:
    assert sorted(kind.type for kind in ACCELERATOR_KINDS) == sorted(set(AcceleratorType) - {AcceleratorType.NO_ACCEL})
    assert kind_of(AcceleratorType.NO_ACCEL) is None
    assert kind_of("") is None
    assert all(kind_of(kind.type) is kind for kind in ACCELERATOR_KINDS)


@pytest.mark.parametrize("kind", ACCELERATOR_KINDS, ids=lambda kind: str(kind.type))
def test_patterns_name_what_is_read_from_them(kind: object) -> None:
    assert {"index", "model"} <= set(re.compile(kind.device).groupindex)  # type: ignore[attr-defined]
    assert kind.visible_variables[0] in VISIBLE_VARIABLES  # type: ignore[attr-defined]


def test_devices_have_their_backends() -> None:
    backends = {device: collective_backend(device) for device in ("cpu", "cuda", "npu", "xpu", "musa")}
    assert backends == {"cpu": None, "cuda": "nccl", "npu": "hccl", "xpu": "xccl", "musa": "mccl"}
