"""Published questions about accelerators have the table's answers."""

from __future__ import annotations

import pytest
import torch

from rlinf.errors import ConfigError
from rlinf.scheduler import AcceleratorType, AcceleratorUtil

NPU, AMD, NONE = AcceleratorType.NPU, AcceleratorType.AMD_GPU, AcceleratorType.NO_ACCEL


def test_variables_limit_what_a_process_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AcceleratorUtil.get_accelerator_env_var(NPU, ["1", "2"]) == {"ASCEND_RT_VISIBLE_DEVICES": "1,2"}
    assert AcceleratorUtil.get_accelerator_env_var(NONE, ["1"]) == {}
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "3, 1")
    assert AcceleratorUtil.get_visible_devices(NPU) == [3, 1]
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "GPU-aa")
    assert AcceleratorUtil.get_visible_devices(NPU) == []
    assert AcceleratorUtil.get_visible_devices(NONE) == []


def test_names_are_those_of_torch() -> None:
    assert (AcceleratorUtil.get_device_type(AMD), AcceleratorUtil.get_torch_platform(AMD)) == ("cuda", torch.cuda)
    assert [AcceleratorUtil.get_ccl_backend(kind) for kind in (AMD, NPU, NONE)] == ["nccl", "hccl", None]
    assert AcceleratorUtil.get_ccl_socket_ifname_env_var(NONE) == "GLOO_SOCKET_IFNAME"
    assert AcceleratorUtil.get_ccl_socket_ifname_env_var(AMD) == "NCCL_SOCKET_IFNAME"
    assert AcceleratorUtil.get_torch_platform(NONE) is None
    assert AcceleratorUtil.get_device_type(NONE) is None
    with pytest.raises(ConfigError, match="NV_GPU"):
        AcceleratorUtil.get_device_type("TPU")  # type: ignore[arg-type]


def test_the_type_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert AcceleratorUtil.get_accelerator_type() == AcceleratorType.NO_ACCEL
