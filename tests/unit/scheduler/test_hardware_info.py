"""Descriptions of hardware are mappings whose published attributes can be read."""

from __future__ import annotations

import pickle

import pytest

from rlinf.scheduler import HardwareInfo


def test_an_accelerator_has_a_type_and_a_model() -> None:
    info = HardwareInfo({"type": "NV_GPU", "local_rank": 1, "model": "H100"})
    assert (info.type, info.model, info["local_rank"]) == ("NV_GPU", "H100", 1)
    assert info == {"type": "NV_GPU", "local_rank": 1, "model": "H100"}
    assert pickle.loads(pickle.dumps(info)).model == "H100"


def test_a_robot_has_the_configuration_that_its_node_group_declares() -> None:
    info = HardwareInfo(type="Franka", node_rank=1, robot_ip="10.0.0.1")
    assert (info.type, info.model, info.config.robot_ip) == ("Franka", "Franka", "10.0.0.1")
    with pytest.raises(AttributeError, match="camera_serials"):
        _ = info.config.camera_serials
    assert not hasattr(info.config, "type")
