"""The adapter for RLinf's own simulators builds what a section says."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlinf.envs.guests import rlinf_simulator
from rlinf.envs.guests.rlinf_simulator import SimulatorRow, SimulatorRows, make_batch

HOST = {"num_envs": 2, "first_env": 0, "render": False, "group_size": 1, "max_episode_steps": 3}


class Arm:
    """A ``SingleEnv`` whose observation is the moment at which it is looked at."""

    action_space = SimpleNamespace(low=np.zeros(1), high=np.ones(1))

    def __init__(self, *, render: bool, name: str = "") -> None:
        self.renders, self.name, self.moment = render, name, 0

    def reset(self, seed: int) -> int:
        self.moment = seed
        return seed

    def step(self, action: Any) -> tuple[int, float, bool, bool, None]:
        self.moment += int(action[0])
        return self.moment, 0.5, False, True, None

    def observe(self, raw: int) -> dict[str, Any]:
        return {"states": np.array([raw, self.moment]), "task_descriptions": self.name}

    def render(self) -> str:
        return self.name

    def close(self) -> None:
        self.moment = -1


def test_a_row_is_observed_only_where_it_is_looked_at() -> None:
    row = SimulatorRow(Arm(render=False))
    assert row.reset(4)["states"].tolist() == [4, 4]
    look, *rest = row.step([2])
    assert rest == [0.5, False, True, None]
    row.step([1])
    assert look()["states"].tolist() == [6, 7]


def test_environments_have_their_own_arguments_and_videos_where_wanted() -> None:
    spec = SimpleNamespace(
        factory=Arm, kwargs={}, row_kwargs=[{"name": "left"}, {"name": "right"}], num_envs=2, first_env=4
    )
    rows = SimulatorRows(None, spec, render=True)
    assert [row["task_descriptions"] for row in rows.reset([0, 1], [1, 2])] == ["left", "right"]
    assert rows.render(1) == "right"
    assert rows._envs[0]._env.renders
    rows.close()
    assert rows._envs[1]._env.moment == -1
    assert not SimulatorRows(None, spec, render=False)._envs[0]._env.renders


def test_an_interpreter_that_is_too_old_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 0))
    with pytest.raises(RuntimeError, match=r"is Python 3\.8; env_type=libero needs 3\.10"):
        make_batch(**HOST, section={"env_type": "libero"})


def test_rlinf_is_taken_from_the_folder_and_else_left_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded = list[tuple[Path, str]]()
    monkeypatch.setattr(rlinf_simulator, "load_package", lambda folder, name: loaded.append((folder, name)))
    folder = Path(rlinf_simulator.__file__).parents[2]
    rlinf_simulator._find_rlinf(folder)
    assert not loaded, "it is imported already"
    monkeypatch.delitem(sys.modules, "rlinf")
    rlinf_simulator._find_rlinf(tmp_path / "rlinf")
    assert not loaded, "the folder of guests was copied alone"
    rlinf_simulator._find_rlinf(folder)
    assert loaded == [(folder, "rlinf")]
