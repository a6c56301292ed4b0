"""Isaac Lab 2.3.0 as its adapter calls it, without Isaac Sim: tasks are numbers that count steps, in reused tensors."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

APPS: list[App] = []
LABS: list[Lab] = []
TERMS = ("time_out", "dropped", "success")


class App:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.is_closed = settings, False

    def close(self) -> None:
        self.is_closed = True


class AppLauncher:
    def __init__(self, launcher_args: Any = None, **settings: Any) -> None:
        assert launcher_args is None
        assert len(sys.argv) == 1, "Isaac Sim takes these arguments for its own"
        assert settings.keys() == {"headless", "enable_cameras", "device"}
        self.app = App(settings)
        APPS.append(self.app)


class TerminationManager:
    """As in 2.3.0, ``get_term`` says how the last episode ended, until the next one ends."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.active_terms = list(TERMS)
        self.terminated = torch.zeros(lab.num_envs, dtype=torch.bool)
        self.time_outs = torch.zeros(lab.num_envs, dtype=torch.bool)
        self.ends = torch.zeros(lab.num_envs, len(TERMS), dtype=torch.bool)

    def compute(self) -> torch.Tensor:
        lab = self.lab
        found = (lab.time >= 6, lab.pushed > 5, lab.time >= lab.wanted)
        self.terminated[:], self.time_outs[:] = found[1] | found[2], found[0]
        for number, value in enumerate(found):
            self.ends[value] = False
            self.ends[value, number] = True
        return self.terminated | self.time_outs

    def get_term(self, name: str) -> torch.Tensor:
        return self.ends[:, TERMS.index(name)]


class Lab(gymnasium.Env[Any, Any]):
    """Manager-based: ended environments are reset in the step that ended them, unless ``compute`` says otherwise."""

    def __init__(self, cfg: Any, render_mode: str | None = None, **entry_points: Any) -> None:
        assert entry_points.keys() == {"env_cfg_entry_point"}
        self.cfg, self.num_envs, self.device = cfg, cfg.scene.num_envs, cfg.sim.device
        self.single_action_space = gymnasium.spaces.Box(-np.inf, np.inf, (7,), np.float32)
        self.start, self.pushed = torch.zeros(2, self.num_envs)
        self.wanted, self.time = torch.zeros(2, self.num_envs, dtype=torch.int64)
        self.rewards = torch.zeros(self.num_envs)
        self.termination_manager = TerminationManager(self)
        self.actions: list[torch.Tensor] = []
        self.num_resets, self.is_closed = 0, False
        side = (cfg.scene.table_cam.height, cfg.scene.table_cam.width)
        zeros = torch.zeros
        self.buffers = {
            "actions": zeros(self.num_envs, 7),
            "eef_pos": zeros(self.num_envs, 3),
            "eef_quat": zeros(self.num_envs, 4),
            "gripper_pos": zeros(self.num_envs, 2),
            "table_cam": zeros(self.num_envs, *side, 3, dtype=torch.uint8),
            "wrist_cam": zeros(self.num_envs, *side, 4, dtype=torch.uint8),
        }
        LABS.append(self)

    def reset(self, seed: Any = None, env_ids: Any = None, options: Any = None) -> Any:  # type: ignore[override]
        assert env_ids is None or isinstance(env_ids, torch.Tensor)
        if seed is not None:
            torch.manual_seed(seed)
        self._reset_idx(torch.arange(self.num_envs) if env_ids is None else env_ids)
        return self._compute(), {}

    def step(self, action: torch.Tensor) -> Any:
        assert action.shape == (self.num_envs, 7)
        assert action.dtype == torch.float32
        self.actions.append(action.clone())
        self.time += 1
        self.pushed += action[:, 0]
        ended = self.termination_manager.compute()
        terminated, time_outs = self.termination_manager.terminated, self.termination_manager.time_outs
        self.rewards[:] = self.start + self.time
        if ended.any():
            self._reset_idx(ended.nonzero().squeeze(-1))
        return self._compute(), self.rewards, terminated, time_outs, {"log": {}}

    def close(self) -> None:
        self.is_closed = True

    def _reset_idx(self, env_ids: torch.Tensor) -> None:
        self.num_resets += 1
        self.start[env_ids] = torch.rand(len(env_ids))
        self.wanted[env_ids] = 2 + (self.start[env_ids] * 3).long()
        self.time[env_ids], self.pushed[env_ids] = 0, 0.0

    def _compute(self) -> dict[str, Any]:
        seen = self.buffers
        seen["eef_pos"][:] = self.start[:, None]
        seen["eef_quat"][:, 0], seen["eef_quat"][:, 3] = torch.cos(self.start / 2), torch.sin(self.start / 2)
        seen["gripper_pos"][:] = self.time[:, None]
        seen["table_cam"][:] = self.time.to(torch.uint8)[:, None, None, None]
        seen["wrist_cam"][:] = 100 + self.time.to(torch.uint8)[:, None, None, None]
        return {"policy": seen, "subtask_terms": {}, "joined": self.start[:, None].expand(-1, 5)}


class DirectLab(gymnasium.Env[Any, Any]):
    def __init__(self, cfg: Any, render_mode: str | None = None, **entry_points: Any) -> None:
        self.cfg = cfg


class Cfg:
    """A configuration whose keys are checked when it is used, not when it is set."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.sim = SimpleNamespace(device="cuda:0")
        cameras = {name: SimpleNamespace(height=200, width=200) for name in ("table_cam", "wrist_cam")}
        self.scene = SimpleNamespace(num_envs=4096, **cameras)


def parse_env_cfg(
    task_name: str, device: str = "cuda:0", num_envs: int | None = None, use_fabric: bool | None = None
) -> Cfg:
    """Return the configuration of a task."""
    cfg: Cfg = gymnasium.spec(task_name).kwargs["env_cfg_entry_point"]()
    cfg.sim.device = device
    if num_envs is not None:
        cfg.scene.num_envs = num_envs
    return cfg


def register_tasks() -> None:
    """Do what the import of the tasks does, which knows them when the simulator runs, and not before."""
    assert APPS
    for name, task in (("Fake-Stack-v0", Lab), ("Fake-Direct-v0", DirectLab)):
        gymnasium.register(name, entry_point=task, disable_env_checker=True, kwargs={"env_cfg_entry_point": Cfg})
