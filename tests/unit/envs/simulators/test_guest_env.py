"""``env_type: guest`` keeps the rules of environments, from an interpreter of its own."""

import sys
from pathlib import Path
from typing import Any

import pytest
from toy_envs import episode_length

from rlinf.config.schema.env import GuestConfig, GuestEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.guest_settings import PYTHON_VARIABLE
from rlinf.envs.readiness import check_env_config
from rlinf.errors import ConfigError


def guest_config(python: str | None = sys.executable, **changes: Any) -> GuestEnvConfig:
    given: dict[str, Any] = {
        "env_type": "guest",
        "adapter": "guest_simulator",
        "guest": GuestConfig(python=python, env_vars={"PYTHONPATH": str(Path(__file__).parents[1])}),
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 6,
        "max_steps_per_rollout_epoch": 12,
    }
    return GuestEnvConfig(**{**given, **changes})


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_guests_conform(num_env_processes: int) -> None:
    cfg = guest_config(num_env_processes=num_env_processes)
    with make_vector_env(cfg, num_envs=4) as env:
        assert env.observation_space["states"].shape == (2,)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=4))


def test_the_interpreter_is_that_of_the_recipe_else_of_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=rf"env\.\*\.guest\.python: received null, and {PYTHON_VARIABLE} is not set"):
        check_env_config(guest_config(python=None))
    with pytest.raises(ConfigError, match="no executable file"):
        check_env_config(guest_config(python=str(tmp_path / "python")))
    monkeypatch.setenv(PYTHON_VARIABLE, sys.executable)
    check_env_config(guest_config(python=None))
    with make_vector_env(guest_config(python=None), num_envs=4) as env:
        states = env.reset(1)["states"]
    assert episode_length(int(states[0, 0])) in range(3, 8)
