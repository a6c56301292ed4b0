"""What a worker is told of its hardware becomes the dataclass of its type."""

import pytest

from rlinf.config.hardware import parse_hardware
from rlinf.config.schema.realworld import FrankaHardwareConfig
from rlinf.errors import ConfigError


def test_a_description_becomes_its_dataclass() -> None:
    info = {"type": "Franka", "node_rank": 3, "robot_ip": "10.0.0.1"}
    assert parse_hardware(info, FrankaHardwareConfig) == FrankaHardwareConfig(node_rank=3, robot_ip="10.0.0.1")
    assert info["type"] == "Franka"


@pytest.mark.parametrize(
    ("keys", "remedy"), [({"robot_ip": 7}, "configs[].robot_ip: received 7"), ({"speed": 1}, "speed: unknown key")]
)
def test_what_does_not_fit_is_told(keys: dict[str, int], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_hardware({"type": "Franka", "node_rank": 0, "robot_ip": "10.0.0.1", **keys}, FrankaHardwareConfig)
    assert remedy in str(caught.value)
