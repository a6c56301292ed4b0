"""``env_type: calvin``: its keys, and with PyBullet its simulator."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rlinf.envs
from rlinf.config.schema.env import CalvinEnvConfig, GuestConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.guests.calvin_chains import load_chains
from rlinf.envs.guests.calvin_tasks import SENTENCES
from rlinf.envs.readiness import check_env_config
from rlinf.envs.simulators.calvin_env import SOURCE_VARIABLE, calvin_chains
from rlinf.errors import ConfigError


def calvin_config(**changes: Any) -> CalvinEnvConfig:
    given: dict[str, Any] = {
        "env_type": "calvin",
        "guest": GuestConfig(python=os.environ.get("RLINF_GUEST_PYTHON", sys.executable)),
        "total_num_envs": 2,
        "group_size": 2,
        "max_episode_steps": 6,
        "max_steps_per_rollout_epoch": 12,
        "image_size": 32,
        "wrist_image_size": 24,
    }
    return CalvinEnvConfig(**{**given, **changes})


def source(folder: Path) -> str:
    """Make a folder that looks like CALVIN's simulator."""
    (folder / "calvin_env" / "envs").mkdir(parents=True)
    (folder / "calvin_env" / "envs" / "play_table_env.py").touch()
    return str(folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cameras": []}, r"env\.\*\.cameras: received \[\]; allowed are static and gripper"),
        ({"cameras": ["static", "static"]}, "each once"),
        ({"first_tasks": ["open_door"]}, r"env\.\*\.first_tasks: received \['open_door'\]. CALVIN has .* open_drawer"),
        ({"first_tasks": ["place_in_drawer"]}, "no published chain begins"),
        ({"source_path": None}, rf"env\.\*\.source_path: received null, and {SOURCE_VARIABLE} is not set"),
        ({"source_path": "nowhere"}, "'nowhere', which has no calvin_env.*git clone"),
        ({"guest": GuestConfig(python="no_python")}, r"env\.\*\.guest\.python: received 'no_python'"),
    ],
)
def test_wrong_keys_are_refused(
    changes: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SOURCE_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=told):
        check_env_config(calvin_config(**{"source_path": source(tmp_path), **changes}))


def test_the_folder_is_that_of_the_recipe_else_of_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCE_VARIABLE, source(tmp_path))
    check_env_config(calvin_config())
    with pytest.raises(ConfigError, match="elsewhere"):
        check_env_config(calvin_config(source_path="elsewhere"))


def test_chains_are_those_of_the_section() -> None:
    assert calvin_chains(calvin_config()) == load_chains()
    assert {tasks[0] for _, tasks in calvin_chains(calvin_config(first_tasks=["open_drawer"]))} == {"open_drawer"}


def rollout(cfg: CalvinEnvConfig, seed: int) -> dict[str, Any]:
    """Play a chunk of random actions, in processes of their own."""
    actions = torch.tensor(np.random.default_rng(1).uniform(-1, 1, (2, 5, 7)), dtype=torch.float32)
    with make_vector_env(cfg, num_envs=2) as env:
        env.reset(seed)
        return env.chunk_step(actions).obs


@pytest.mark.calvin
@pytest.mark.timeout(600)
def test_calvin_conforms() -> None:
    cfg = calvin_config()
    with make_vector_env(cfg, num_envs=2) as env:
        assert env.observation_space["states"].shape == (15,)
        assert env.observation_space["main_images"].shape == (32, 32, 3)
        assert env.observation_space["wrist_images"].shape == (24, 24, 3)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))


@pytest.mark.calvin
@pytest.mark.timeout(600)
def test_another_process_plays_alike() -> None:
    first, second = (rollout(calvin_config(num_env_processes=number), seed=4) for number in (0, 2))
    assert first["task_descriptions"] == second["task_descriptions"]
    for key in ("states", "main_images", "wrist_images"):
        assert torch.equal(first[key], second[key]), key


SOLVE = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from guests.calvin import make
env = make(render=False, source_path=sys.argv[2], scene="D", first_tasks=["open_drawer"], chain_length=1,
           cameras=["static"], image_size=16, wrist_image_size=16)
for turn in range(2):
    first = env.reset(turn)
    states = first["states"]
    assert env.step(np.zeros(7))[1:] == (0.0, False, False, False)
    env._env.scene.doors[1].reset(0.2)
    assert env.step(np.zeros(7))[1:] == (1.0, True, False, True)
    env.reset(3)
    again = env.reset(turn)
    assert all(np.array_equal(again[key], first[key]) for key in ("states", "main_images"))
opened = env._env.robot.get_observation()[0][6]
for gripper, wider in ((-1.0, False), (1.0, True)):
    for _ in range(15):
        env.step(np.array([0, 0, 0, 0, 0, 0, gripper]))
    found = env._env.robot.get_observation()[0][6]
    assert (found > opened) == wider, (found, opened)
    opened = found
print(first["task_descriptions"])
"""


@pytest.mark.calvin
@pytest.mark.timeout(600)
def test_calvin_tells_success_and_moves_the_gripper() -> None:
    cfg = calvin_config()
    run = subprocess.run(
        [
            str(cfg.guest.python),
            "-W",
            "ignore",
            "-c",
            SOLVE,
            str(Path(rlinf.envs.__path__[0])),
            os.environ[SOURCE_VARIABLE],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert SENTENCES["open_drawer"] in run.stdout
