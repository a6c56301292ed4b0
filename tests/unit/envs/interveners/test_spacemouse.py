"""What the position of a SpaceMouse amounts to."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from frankasim_configs import frankasim_config

from rlinf.config.schema.intervention import SpaceMouseIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.spacemouse import SpaceMouseIntervener
from rlinf.errors import EnvironmentFailure, MissingPackageError

CFG = SpaceMouseIntervenerConfig(intervener_type="spacemouse", dead_zone=0.2, sensitivity=2.0)


def state(**values: Any) -> SimpleNamespace:
    rest: dict[str, Any] = {"x": 0.0, "y": 0.0, "z": 0.0, "roll": 0.0, "pitch": 0.0, "yaw": 0.0, "buttons": [0, 0]}
    return SimpleNamespace(**{**rest, **values})


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("pyspacemouse")
    module.open = lambda: True
    module.read = lambda: module.state
    module.close = lambda: setattr(module, "is_closed", True)
    module.state, module.is_closed = state(), False
    monkeypatch.setitem(sys.modules, "pyspacemouse", module)
    return module


def act(intervener: SpaceMouseIntervener) -> list[float] | None:
    chosen = intervener.act(Situation({}, torch.zeros(7), 0.0, 0))
    return None if chosen is None else [round(value, 6) for value in chosen.tolist()]


def test_a_push_is_a_motion_and_rest_hands_back(device: Any) -> None:
    intervener = SpaceMouseIntervener(CFG, env=frankasim_config(), row=0)
    assert act(intervener) is None
    device.state = state(y=0.15)
    assert act(intervener) is None  # within the dead zone
    device.state = state(x=0.3, y=0.9, yaw=0.1)
    assert act(intervener) == [1.0, -0.6, 0, 0, 0, -0.2, 1]
    device.state = state(buttons=[1, 0])
    assert act(intervener) == [0, 0, 0, 0, 0, 0, -1]
    device.state = state(z=0.5)
    assert act(intervener) == [0, 0, 1.0, 0, 0, 0, -1]  # the gripper stays closed
    device.state = state(buttons=[0, 1])
    assert act(intervener) == [0, 0, 0, 0, 0, 0, 1]
    intervener.close()
    assert device.is_closed


def test_a_device_that_is_not_there_is_told(device: Any) -> None:
    device.open = lambda: False
    with pytest.raises(EnvironmentFailure, match="no SpaceMouse answers"):
        SpaceMouseIntervener(CFG, env=frankasim_config(), row=0)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspacemouse", None)
    with pytest.raises(MissingPackageError, match="pip install pyspacemouse"):
        SpaceMouseIntervener(CFG, env=frankasim_config(), row=0)
