"""What tests of adapters share: the fakes of simulators, chunks of actions, and a guest that has an adapter."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.config.schema.env import GuestConfig, GuestEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.guests import guest_server
from rlinf.envs.guests.rows import GuestRows

HERE = Path(__file__).parent
SIMULATORS = ("robocasa", "robotwin", "isaaclab", "omnigibson", "habitat")
_ARMS = {"two-arms": [["l"] * 6, ["r"] * 6], "other-arms": [["l"] * 2, ["r"] * 7]}
_SETTINGS = {
    "render_freq": 10,
    "embodiment": ["two-arms"],
    "domain_randomization": {"random_background": False, "cluttered_table": False},
    "camera": {"head_camera_type": "Small", "collect_wrist_camera": False},
    "data_type": {"rgb": True, "depth": False},
}
_R1PRO = {
    "env": {"action_frequency": 30, "automatic_reset": True, "flatten_action_space": True, "flatten_obs_space": True},
    "scene": {"type": "InteractiveTraversableScene", "scene_model": "none"},
    "robots": [{"type": "R1Pro", "name": "robot_r1", "obs_modalities": ["depth"], "proprio_obs": []}],
    "task": {"type": "DummyTask", "termination_config": {"max_steps": 500}},
}
FILES: dict[str, Any] = {
    "robocasa/__init__.py": "",
    "robocasa/utils/__init__.py": "",
    "robocasa/utils/env_utils.py": "from robocasa_simulator import create_env",
    "isaaclab/__init__.py": "",
    "isaaclab/app.py": "from isaaclab_simulator import AppLauncher",
    "isaaclab_tasks/__init__.py": "from isaaclab_simulator import register_tasks\nregister_tasks()",
    "isaaclab_tasks/utils.py": "from isaaclab_simulator import parse_env_cfg",
    "omnigibson/__init__.py": (
        "import omnigibson_simulator\n"
        "example_config_path = __path__[0]\n"
        "def __getattr__(name):\n"
        "    return getattr(omnigibson_simulator, name)"
    ),
    "omnigibson/r1pro_behavior.yaml": _R1PRO,
    "omnigibson/macros.py": "from omnigibson_simulator import gm",
    "omnigibson/learning/__init__.py": "",
    "omnigibson/learning/utils/__init__.py": "",
    "omnigibson/learning/utils/eval_utils.py": "from omnigibson_simulator import PROPRIOCEPTION_INDICES",
    "habitat.py": "from habitat_simulator import Env, get_config",
    "robotwin/envs/__init__.py": "CONFIGS_PATH = __path__[0] + '/../task_config/'",
    "robotwin/envs/_base_task.py": "",
    "robotwin/envs/beat_block_hammer.py": "import envs._base_task\nfrom robotwin_simulator import beat_block_hammer",
    "robotwin/envs/utils/__init__.py": "",
    "robotwin/envs/utils/create_actor.py": "from robotwin_simulator import UnStableError",
    "robotwin/task_config/demo_clean.yml": _SETTINGS,
    "robotwin/task_config/demo_pair.yml": {**_SETTINGS, "embodiment": ["two-arms", "other-arms", 0.6]},
    "robotwin/task_config/_embodiment_config.yml": {name: {"file_path": f"./assets/{name}"} for name in _ARMS},
    "robotwin/task_config/_camera_config.yml": {"Small": {"fovy": 37, "w": 4, "h": 3}},
    **{f"robotwin/assets/{name}/config.yml": {"arm_joints_name": joints} for name, joints in _ARMS.items()},
    "robotwin/description/task_instruction/beat_block_hammer.json": {
        "full_description": "use the arm to <grab the hammer> and <beat the block>"
    },
}
"""The simulators' modules, which show the fakes of this folder in their places, and their data."""


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Have the fakes imported as the simulators, from this folder; nothing of them is left behind."""
    folder = tmp_path / "fakes"
    write_files(folder, FILES)
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(Path.cwd())
    monkeypatch.setattr(sys, "argv", ["guest", "7", "8"])
    yield folder
    simulators = {f"{name}_simulator" for name in SIMULATORS}
    for name in set(sys.modules) - before:
        if name in simulators or str(folder) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def write_files(folder: Path, files: dict[str, Any]) -> None:
    """Write texts, and everything else as JSON, which YAML can be read from."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def fake(name: str) -> Any:
    """Return the fake of a simulator."""
    return importlib.import_module(f"{name}_simulator")


def build(adapter: str, init_params: dict[str, Any], *, num_envs: int = 1, num_recorded: int = 0) -> GuestRows:
    """Build environments in this process, as a guest does."""
    return guest_server.build_rows(
        {
            "adapter": adapter,
            "num_envs": num_envs,
            "first_env": 0,
            "num_recorded": num_recorded,
            "episode": {"group_size": 1, "max_episode_steps": 50},
            "init_params": init_params,
        }
    )


def reset(rows: GuestRows, *seeds: int) -> dict[str, Any]:
    """Start an episode in each environment, and return the observation."""
    seen: dict[str, Any] = rows.reset(np.arange(len(seeds)), np.array(seeds))["obs"]
    return seen


def run(rows: GuestRows, actions: Any, **changes: Any) -> dict[str, Any]:
    """Execute a chunk of actions [B, C, A] in all environments."""
    actions = np.asarray(actions, np.float32)
    request = {
        "actions": actions,
        "active": np.ones(len(actions), np.bool_),
        "steps": np.zeros(len(actions), np.int64),
        "next_seeds": None,
        "rule": [50, False],
        "observes": True,
    }
    return rows.run_chunk({**request, **changes})


def check_in_guest(
    folder: Path, adapter: str, init_params: dict[str, Any], *, num_envs: int = 2, varied: bool = True
) -> None:
    """Check the rules of environments with an adapter in guests, which have the fakes of a folder."""
    cfg = GuestEnvConfig(
        env_type="guest",
        adapter=adapter,
        guest=GuestConfig(python=sys.executable, env_vars={"PYTHONPATH": f"{folder}:{HERE}"}),
        init_params=init_params,
        total_num_envs=num_envs,
        max_episode_steps=5,
        max_steps_per_rollout_epoch=10,
    )
    with make_vector_env(cfg, num_envs=num_envs) as env:
        check_vector_env(env, varied_resets=varied)
