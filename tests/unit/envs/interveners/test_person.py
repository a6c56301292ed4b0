"""Interveners that a person drives: one environment each, and the hand closes where the person closes it."""

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builtin_configs import metaworld_config
from frankasim_configs import frankasim_config
from langpick_configs import langpick_config
from libero_configs import libero_config, needs_assets
from maniskill_configs import PUSH_CUBE, maniskill_config
from robosuite_configs import robosuite_config

from rlinf.config.schema.env import CalvinEnvConfig, EnvConfig, GuestConfig
from rlinf.config.schema.intervention import InterventionConfig, KeyboardIntervenerConfig
from rlinf.envs import make_vector_env
from rlinf.envs.interveners.keyboard import KeyboardIntervener
from rlinf.envs.interveners.person import twist_to_action
from rlinf.envs.wrappers.intervention import Intervention
from rlinf.errors import ConfigError

CFG = KeyboardIntervenerConfig(intervener_type="keyboard", speed=0.5)
ONE: dict[str, Any] = {
    "total_num_envs": 1,
    "group_size": 1,
    "max_episode_steps": 60,
    "max_steps_per_rollout_epoch": 60,
    "wrappers": [InterventionConfig(name="intervention", intervener=CFG)],
}


@pytest.mark.usefixtures("device")
def test_one_person_drives_one_environment() -> None:
    with pytest.raises(ConfigError, match="total_num_envs"):
        KeyboardIntervener(CFG, env=None, row=1)  # type: ignore[arg-type]


def simulated(name: str) -> tuple[EnvConfig, Callable[[torch.Tensor], torch.Tensor]]:
    """Return an environment, and how far its fingers are apart, by its states."""
    match name:
        case "metaworld":
            pytest.importorskip("metaworld")
            return metaworld_config(**ONE), lambda states: states[3]
        case "metaworld_padded":
            pytest.importorskip("metaworld")
            return metaworld_config(**ONE, action_convention="padded"), lambda states: states[3]
        case "frankasim":
            pytest.importorskip("mujoco")
            return frankasim_config(**ONE), lambda states: states[6]
        case "langpick":
            pytest.importorskip("mujoco")
            return langpick_config(**ONE), lambda states: states[3]
        case "robosuite":
            return robosuite_config(**ONE), lambda states: states[28] - states[29]
        case "maniskill":
            return maniskill_config(**ONE, init_params=PUSH_CUBE), lambda states: states[7] + states[8]
        case "calvin_native" | "calvin_rlds":
            guest = GuestConfig(python=os.environ.get("RLINF_GUEST_PYTHON", sys.executable))
            convention = name.removeprefix("calvin_")
            cfg = CalvinEnvConfig(env_type="calvin", **ONE, guest=guest, image_size=16, action_convention=convention)
            return cfg, lambda states: states[6]
    needs_assets()
    convention = "rlds" if name == "libero_rlds" else "native"
    cfg = libero_config(**ONE, task_id_filter=[0], action_convention=convention)
    return cfg, lambda states: states[6] - states[7]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("metaworld", marks=pytest.mark.metaworld),
        pytest.param("metaworld_padded", marks=pytest.mark.metaworld),
        "frankasim",
        "langpick",
        pytest.param("robosuite", marks=pytest.mark.libero),
        pytest.param("libero_native", marks=pytest.mark.libero),
        pytest.param("libero_rlds", marks=pytest.mark.libero),
        pytest.param("maniskill", marks=pytest.mark.maniskill),
        pytest.param("calvin_native", marks=pytest.mark.calvin),
        pytest.param("calvin_rlds", marks=pytest.mark.calvin),
    ],
)
def test_c_closes_the_simulated_hand_and_v_opens_it(name: str) -> None:
    cfg, opening = simulated(name)
    with make_vector_env(cfg, num_envs=1) as env:
        wrapper = env._wrappers[-1]
        assert isinstance(wrapper, Intervention)
        listener: Any = wrapper.interveners[0]._listener  # type: ignore[attr-defined]

        def hold(key: str) -> float:
            listener.press(SimpleNamespace(char=key))
            for _ in range(12):
                step = env.chunk_step(torch.zeros(1, 1, env.action_dim))
                assert step.intervene_flag.all()
            listener.release(SimpleNamespace(char=key))
            return float(opening(step.obs["states"][0]))

        env.reset(0)
        closed, opened = hold("c"), hold("v")
        assert opened > 1.5 * closed
        assert hold("c") < (closed + opened) / 2


@pytest.mark.parametrize(
    ("env_type", "opens", "expected"),
    [("libero", None, -1.0), ("libero", -1, -1.0), ("calvin", None, 1.0), ("robot", -1, -1.0), ("robot", 1, 1.0)],
)
def test_the_number_that_opens_is_the_environments(env_type: str, opens: Any, expected: float) -> None:
    env = EnvConfig(env_type=env_type, total_num_envs=1, max_episode_steps=1, max_steps_per_rollout_epoch=1)
    cfg = KeyboardIntervenerConfig(intervener_type="keyboard", gripper_opens=opens)
    for gripper in (1.0, -1.0):
        assert twist_to_action([0.0] * 6, gripper, 7, cfg=cfg, env=env)[-1] == gripper * expected
    assert twist_to_action([0.5] * 6, 1.0, 6, cfg=cfg, env=env).tolist() == [0.5] * 6


@pytest.mark.parametrize(
    ("env_type", "opens", "told"),
    [("robot", None, "received null; .* env_type=robot. Set it to 1 or -1"), ("libero", 1, "received 1; -1 opens")],
)
def test_a_gripper_that_is_unknown_or_known_otherwise_is_told(env_type: str, opens: Any, told: str) -> None:
    env = EnvConfig(env_type=env_type, total_num_envs=1, max_episode_steps=1, max_steps_per_rollout_epoch=1)
    cfg = KeyboardIntervenerConfig(intervener_type="keyboard", gripper_opens=opens)
    with pytest.raises(ConfigError, match=f"intervention: gripper_opens: {told}"):
        twist_to_action([0.0] * 6, 1.0, 4, cfg=cfg, env=env)
    assert twist_to_action([0.5] * 6, 1.0, 3, cfg=cfg, env=env).tolist() == [0.5] * 3
