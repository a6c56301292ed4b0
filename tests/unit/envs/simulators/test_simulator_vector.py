"""A simulator's section plays alike in this interpreter and in a guest's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from builtin_configs import metaworld_config
from frankasim_configs import frankasim_config
from langpick_configs import langpick_config

import rlinf
from rlinf.config.schema.env import GuestConfig, SimulatorConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env, sample_actions
from rlinf.envs.readiness import check_env_config
from rlinf.errors import ConfigError

HERE = GuestConfig(python=sys.executable)


def played(cfg: SimulatorConfig, *, num_envs: int, first_env: int = 0) -> list[Any]:
    """Play chunks in which episodes end, and return all that is seen."""
    with make_vector_env(cfg, num_envs=num_envs, first_env=first_env) as env:
        seen: list[Any] = [env.versions(), env.reset(3)]
        for number in range(4):
            actions = sample_actions(env.action_space, num_envs=num_envs, num_chunks=3, seed=number)
            step = env.chunk_step(actions)
            seen += [
                step.obs,
                step.rewards,
                step.terminations,
                step.truncations,
                [dict(each) for each in step.episodes],
            ]
    return seen


def require_equal(first: Any, second: Any, where: str = "") -> None:
    assert type(first) is type(second), where
    if isinstance(first, dict):
        assert sorted(first) == sorted(second), where
        for key in first:
            require_equal(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype, where
        assert torch.equal(first, second), where
    elif isinstance(first, list):
        assert len(first) == len(second), where
        for index, pair in enumerate(zip(first, second, strict=True)):
            require_equal(*pair, f"{where}[{index}]")
    else:
        assert first == second, where


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_a_guest_plays_what_this_interpreter_plays(num_env_processes: int) -> None:
    pytest.importorskip("mujoco")
    own = played(langpick_config(num_env_processes=num_env_processes), num_envs=4)
    guests = played(langpick_config(num_env_processes=num_env_processes, guest=HERE), num_envs=4)
    require_equal(own, guests)


def test_each_environment_of_a_guest_has_its_own_task() -> None:
    pytest.importorskip("metaworld")
    cfg: dict[str, Any] = {"task_name": "mt3", "total_num_envs": 6, "group_size": 1, "max_episode_steps": 7}
    own = played(metaworld_config(**cfg), num_envs=4, first_env=2)
    require_equal(own, played(metaworld_config(**cfg, guest=HERE), num_envs=4, first_env=2))
    assert len(set(own[1]["task_descriptions"])) == 3


def test_a_simulator_in_a_guest_conforms() -> None:
    pytest.importorskip("mujoco")
    cfg = frankasim_config(guest=HERE)
    with make_vector_env(cfg, num_envs=4) as env:
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=4))


def test_the_packages_of_a_guest_are_not_needed_here() -> None:
    assert frankasim_config().required_packages() == ("mujoco",)
    assert frankasim_config(guest=HERE).required_packages() == ()


def test_a_section_with_a_guest_is_checked_before_a_launch(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env\.\*\.guest\.python: received '.*no executable file"):
        check_env_config(frankasim_config(guest=GuestConfig(python=str(tmp_path))))
    with pytest.raises(ConfigError, match="no task 'mt4'"):
        check_env_config(metaworld_config(task_name="mt4", guest=HERE))


def test_a_mistake_that_only_the_guest_finds_is_the_same_error() -> None:
    with pytest.raises(ConfigError, match="no task 'mt4'"):
        make_vector_env(metaworld_config(task_name="mt4", guest=HERE), num_envs=4)


def test_a_guest_loads_neither_torch_nor_ray() -> None:
    pytest.importorskip("mujoco")
    code = """
import runpy, sys
from pathlib import Path
folder = Path(FOLDER)
runpy.run_path(str(folder / "__main__.py"))["load_package"](folder)
import rlinf_guest.guest_server as server
section = {"env_type": "frankasim", "total_num_envs": 1, "max_episode_steps": 3, "max_steps_per_rollout_epoch": 3}
request = {"adapter": "rlinf_simulator", "init_params": {"section": section}, "num_envs": 1, "first_env": 0,
           "num_recorded": 0, "episode": {"group_size": 1, "max_episode_steps": 3}}
rows = server.build_rows(request)
loaded = [name in sys.modules for name in ("torch", "ray")]
print(rows.spaces()["observation"]["states"][1], *loaded, sys.modules["rlinf"].__file__)
"""
    package = Path(rlinf.__file__).parent
    run = subprocess.run(
        [sys.executable, "-I", "-c", code.replace("FOLDER", repr(str(package / "envs" / "guests")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.split() == ["[13]", "False", "False", str(package / "__init__.py")], run.stderr
