"""Which GPUs of a node a run uses: those that CUDA_VISIBLE_DEVICES names, in its order."""

from pathlib import Path

import pytest

from rlinf.errors import ClusterError
from rlinf.placement import AcceleratorType
from rlinf.placement.accelerator_kinds import AcceleratorKind, kind_of
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
    assert [entry.id for entry in find_accelerators({}).devices] == [str(number) for number in range(8)]
    found = find_accelerators({"CUDA_VISIBLE_DEVICES": "6,7"})
    assert (found.type, [entry.id for entry in found.devices]) == (AcceleratorType.NV_GPU, ["6", "7"])


def test_a_probe_counts_the_gpus_of_the_drivers_variable(fake_gpus: None) -> None:
    probed = probe_node("n", "127.0.0.1", False, {"CUDA_VISIBLE_DEVICES": "6,GPU-7"})
    devices = [(entry.id, entry.model) for entry in probed.accelerators.devices]
    assert devices == [("6", "Fake GPU"), ("GPU-7", "Fake GPU")]
    hidden = probe_node("n", "127.0.0.1", False, {"CUDA_VISIBLE_DEVICES": ""}).accelerators
    assert (hidden.type, hidden.devices) == (AcceleratorType.NO_ACCEL, ())


# What the tools of the vendors print, as their documents show it; not recorded on machines of this project.
LISTINGS = {
    "AMD_GPU": (
        [
            "device,Card Series,Card Model,Card Vendor",
            "card0,AMD Instinct MI300X,0x74a1,AMD",
            "card1,AMD Instinct MI300X,0x74a1,AMD",
        ],
        "AMD Instinct MI300X",
    ),
    "NPU": (
        [
            "\tNPU ID                 Chip ID                Chip Logic ID          Chip Name",
            "\t0                      0                      0                      Ascend 910B3",
            "\t0                      1                      -                      Mcu",
            "\t1                      0                      1                      Ascend 910B3",
        ],
        "Ascend 910B3",
    ),
    "INTEL_GPU": (
        ["Device ID,Device Name", '0,"Intel(R) Data Center GPU Max 1550"', '1,"Intel(R) Data Center GPU Max 1550"'],
        "Intel(R) Data Center GPU Max 1550",
    ),
    "MUSA_GPU": (["GPU 0: MTT S4000 (UUID: abc0)", "GPU 1: MTT S4000 (UUID: abc1)"], "MTT S4000"),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_devices_of_other_vendors_are_found_and_selected(name: str) -> None:
    lines, model = LISTINGS[name]
    kind = kind_of(name)
    assert kind is not None

    def read(asked: AcceleratorKind) -> list[str]:
        return lines if asked is kind else []

    found = find_accelerators({}, read)
    assert found.type == name
    assert [(device.id, device.model) for device in found.devices] == [("0", model), ("1", model)]
    variable = kind.visible_variables[0]
    assert [device.id for device in find_accelerators({variable: "1"}, read).devices] == ["1"]
    with pytest.raises(ClusterError, match=rf"{variable}=7: .* it has: 0"):
        find_accelerators({variable: "7"}, read)
    assert find_accelerators({"OTHER_VISIBLE_DEVICES": "7"}, read) == found


def test_the_former_variable_of_a_kind_is_read_too() -> None:
    lines, _ = LISTINGS["AMD_GPU"]
    found = find_accelerators({"CUDA_VISIBLE_DEVICES": "1"}, lambda kind: lines if kind.type == "AMD_GPU" else [])
    assert [device.id for device in found.devices] == ["1"]


def test_a_node_without_any_has_none() -> None:
    assert find_accelerators({}, lambda _: ["nothing"]).type == AcceleratorType.NO_ACCEL
