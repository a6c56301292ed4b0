"""Which GPUs of a node a run uses: those that CUDA_VISIBLE_DEVICES names, in its order."""

from pathlib import Path

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler.accelerators import find_accelerators, select_accelerators
from rlinf.scheduler.probe import probe_node

A100 = "NVIDIA A100-SXM4-40GB"
LISTING = [
    f"GPU 0: {A100} (UUID: GPU-aaaa1111)",
    "  MIG 1g.5gb      Device  0: (UUID: MIG-cccc0001)",
    "  MIG 2g.10gb     Device  1: (UUID: MIG-cccc0002)",
    "GPU 1: NVIDIA H200 (UUID: GPU-aabb2222)",
    "GPU 2: NVIDIA H200 (UUID: GPU-bbbb3333)",
    "",
]


def ids(visible: str | None, listing: list[str] = LISTING) -> list[str]:
    return [entry.id for entry in select_accelerators(visible, listing)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["0", "1", "2"]),
        ("2,0", ["2", "0"]),
        (" 1 , 2", ["1", "2"]),
        ("GPU-bbbb3333", ["GPU-bbbb3333"]),
        ("GPU-bb,GPU-aaaa", ["GPU-bbbb3333", "GPU-aaaa1111"]),
        ("MIG-cccc0002,MIG-cccc0001", ["MIG-cccc0002", "MIG-cccc0001"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
    ],
)
def test_the_variable_selects_and_orders(visible: str | None, expected: list[str]) -> None:
    assert ids(visible) == expected


def test_models_are_those_of_the_selected_devices() -> None:
    selected = select_accelerators("2,MIG-cccc0001,0", LISTING)
    assert [entry.model for entry in selected] == ["NVIDIA H200", "MIG 1g.5gb", A100]


@pytest.mark.parametrize("visible", ["3", "0,GPU-dddd", "GPU-aa", "0,0", "GPU-aaaa,GPU-aaaa1111", "1,"])
def test_what_names_no_gpu_or_one_twice_is_an_error(visible: str) -> None:
    with pytest.raises(
        ClusterError, match=rf"CUDA_VISIBLE_DEVICES={visible}: .* it has: 0, GPU-aaaa1111, MIG-cccc0001"
    ):
        ids(visible)


def test_a_node_without_gpus_ignores_the_variable() -> None:
    assert ids("0,1", []) == []
    assert ids("0,1", ["No devices were found"]) == []


@pytest.fixture
def fake_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\nfor i in 0 1 2 3 4 5 6 7; do echo "GPU $i: Fake GPU (UUID: GPU-$i)"; done\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def test_nvidia_smi_says_what_there_is(fake_gpus: None) -> None:
    assert [entry.id for entry in find_accelerators(None)] == [str(number) for number in range(8)]
    assert [entry.id for entry in find_accelerators("6,7")] == ["6", "7"]


def test_a_probe_counts_the_gpus_of_the_drivers_variable(fake_gpus: None) -> None:
    probed = probe_node("n", "127.0.0.1", False, "6,GPU-7")
    assert [(entry.id, entry.model) for entry in probed.accelerators] == [("6", "Fake GPU"), ("GPU-7", "Fake GPU")]
    assert probe_node("n", "127.0.0.1", False, "").accelerators == ()
