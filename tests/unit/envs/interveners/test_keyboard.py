"""What keys that are held amount to."""

import sys
from types import SimpleNamespace

import pytest
import torch
from frankasim_configs import frankasim_config

from rlinf.config.schema.intervention import KeyboardIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.keyboard import KeyboardIntervener
from rlinf.errors import ConfigError, MissingPackageError

CFG = KeyboardIntervenerConfig(intervener_type="keyboard", speed=0.5)
ENV = frankasim_config()


def act(intervener: KeyboardIntervener, action_dim: int) -> list[float] | None:
    chosen = intervener.act(Situation({}, torch.zeros(action_dim), 0.0, 0))
    return None if chosen is None else chosen.tolist()


def hold(intervener: KeyboardIntervener, keys: str) -> None:
    for key in keys:
        intervener._listener.press(SimpleNamespace(char=key))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("w", [0.5, 0, 0, 0, 0, 0, 1]),
        ("SF", [-0.5, 0, -0.5, 0, 0, 0, 1]),
        ("ws", [0, 0, 0, 0, 0, 0, 1]),
        ("ajo", [0, 0.5, 0, 0, 0.5, -0.5, 1]),
        ("c", [0, 0, 0, 0, 0, 0, -1]),
        ("x", None),
        ("", None),
    ],
)
def test_held_keys_are_a_motion(keys: str, expected: list[float] | None) -> None:
    intervener = KeyboardIntervener(CFG, env=ENV, row=0)
    hold(intervener, keys)
    assert act(intervener, 7) == expected


@pytest.mark.usefixtures("device")
def test_released_keys_hand_back_and_the_gripper_stays_until_the_next_episode() -> None:
    intervener = KeyboardIntervener(CFG, env=ENV, row=0)
    hold(intervener, "cw")
    intervener._listener.press(SimpleNamespace())  # a key without a character, an arrow
    assert act(intervener, 4) == [0.5, 0, 0, -1]
    for key in "cw":
        intervener._listener.release(SimpleNamespace(char=key))
    assert act(intervener, 4) is None
    hold(intervener, "w")
    assert act(intervener, 4) == [0.5, 0, 0, -1]
    intervener.begin()
    assert act(intervener, 4) == [0.5, 0, 0, 1]
    intervener.close()
    assert not intervener._listener.is_running


@pytest.mark.usefixtures("device")
def test_actions_of_another_kind_are_refused() -> None:
    intervener = KeyboardIntervener(CFG, env=ENV, row=0)
    hold(intervener, "w")
    with pytest.raises(ConfigError, match="have 5"):
        act(intervener, 5)


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynput", None)
    with pytest.raises(MissingPackageError, match=r"pip install .rlinf\[teleop\]."):
        KeyboardIntervener(CFG, env=ENV, row=0)
