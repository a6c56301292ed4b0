"""Policies, operators, replays and data sets speak one convention; the simulator takes its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_episodes import through_a_file
from spoken_env import NativeCloser, SpokenHand, spoken_config

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import ActionDelayConfig, DataCollectionConfig
from rlinf.config.schema.intervention import InterventionConfig, ScriptedIntervenerConfig
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.envs.scripted import make_scripted_policy

SAID = [0.0, 0.3, 0.5, 0.7, 1.0, 7.0]
TAKEN = [1.0, 1.0, 0.0, -1.0, -1.0, -1.0]
WRAPPED = [
    InterventionConfig(
        name="intervention",
        intervener=ScriptedIntervenerConfig(intervener_type="scripted", policy="closer", takeover_probability=1.0),
    )
]


@pytest.fixture(autouse=True)
def closer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_policies, "_entries", dict(scripted_policies._entries))
    scripted_policies.register("closer", NativeCloser)


def said(numbers: list[float]) -> torch.Tensor:
    actions = torch.zeros(2, len(numbers), 7)
    actions[..., 0], actions[..., 6] = 0.25, torch.tensor(numbers)
    return actions


def collecting(folder: Path, **keys: Any) -> Any:
    return spoken_config(data_collection=DataCollectionConfig(enabled=True, save_dir=str(folder)), **keys)


def recorded(folder: Path) -> Any:
    return LeRobotDataset(folder / "part_000000").column("action")


def test_the_simulator_takes_its_own_convention_and_policies_speak_theirs() -> None:
    with SpokenHand(spoken_config(action_convention="rlds"), num_envs=2) as env:
        assert env.action_dim == 7
        assert env.policy_space.low[6] == 0  # type: ignore[attr-defined]
        env.reset(0)
        env.chunk_step(said(SAID))
        assert env.taken == [[number] * 2 for number in TAKEN]
    with SpokenHand(spoken_config(), num_envs=2) as env:
        assert env.policy_space is env.action_space
        env.reset(0)
        env.chunk_step(said(TAKEN))
        assert env.taken == [[number] * 2 for number in TAKEN]


def test_collected_actions_are_those_that_the_policy_said(tmp_path: Path) -> None:
    states = {}
    with SpokenHand(collecting(tmp_path / "first", action_convention="rlds"), num_envs=2) as env:
        env.reset(0)
        states["first"] = env.chunk_step(said(SAID)).final_obs["states"]  # type: ignore[index]
        env.finish_collection()
    actions = recorded(tmp_path / "first")
    np.testing.assert_allclose(actions[:6, 6], np.clip(SAID, 0, 1))
    np.testing.assert_allclose(actions[:, 0], 0.25)
    # What has learned them by heart moves the same hand the same way.
    with SpokenHand(spoken_config(action_convention="rlds"), num_envs=2) as env:
        env.reset(0)
        again = torch.from_numpy(np.stack([actions[:6], actions[6:]]))
        states["again"] = env.chunk_step(again).final_obs["states"]  # type: ignore[index]
    assert torch.equal(states["first"], states["again"])


def test_a_resumed_episode_is_the_same_and_collected_as_it_was_said(tmp_path: Path) -> None:
    cfg = collecting(tmp_path / "killed", action_convention="rlds")
    with SpokenHand(cfg, num_envs=2) as env:
        env.reset(0)
        env.chunk_step(said(SAID[:4]))
        state = env.state_dict()
        expected = env.chunk_step(said(SAID[4:])).final_obs
    with SpokenHand(collecting(tmp_path / "resumed", action_convention="rlds"), num_envs=2) as env:
        env.load_state_dict(through_a_file(state, tmp_path))
        assert env.taken == [[number] * 2 for number in TAKEN[:4]]
        resumed = env.chunk_step(said(SAID[4:])).final_obs
        env.finish_collection()
    assert expected is not None
    assert resumed is not None
    assert torch.equal(resumed["states"], expected["states"])
    np.testing.assert_allclose(recorded(tmp_path / "resumed")[:6, 6], np.clip(SAID, 0, 1))


@pytest.mark.parametrize(("convention", "opened"), [("native", -1.0), ("rlds", 1.0)])
def test_fingers_rest_while_the_first_action_is_delayed(convention: str, opened: float) -> None:
    delay = ActionDelayConfig(name="action_delay", num_steps=2)
    with SpokenHand(spoken_config(action_convention=convention, wrappers=[delay]), num_envs=2) as env:
        for epoch in range(2):
            env.reset(epoch)
            env.chunk_step(said([opened] * 6))
            env.chunk_step(said([opened] * 3))
        assert env.taken == [[number] * 2 for number in [0.0, 0.0, *[-1.0] * 4, 0.0, 0.0, -1.0] * 2]


@pytest.mark.parametrize("convention", ["native", "rlds"])
def test_scripted_policies_act_in_the_convention_and_close_the_same_hand(convention: str) -> None:
    cfg = spoken_config(action_convention=convention)
    policy = make_scripted_policy("closer", cfg)
    with SpokenHand(cfg, num_envs=2) as env:
        obs, openings, grippers = env.reset(0), [], []
        for _ in range(5):
            actions = policy(obs)
            obs = env.chunk_step(actions).obs
            openings.append(float(obs["states"][0, 0]))
            grippers.append(float(actions[0, 0, 6]))
        assert env.taken == [[number] * 2 for number in (1.0, 1.0, 1.0, -1.0, -1.0)]
    assert openings == [0.25, 0.0, 0.0, 0.25, 0.5]
    assert grippers == ([1.0, 1.0, 1.0, -1.0, -1.0] if convention == "native" else [0.0, 0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize("convention", ["native", "rlds"])
def test_a_scripted_intervener_is_reported_as_the_policy_would_say_it(convention: str, tmp_path: Path) -> None:
    cfg = collecting(tmp_path / "set", action_convention=convention, wrappers=WRAPPED)
    closed, opened = (1.0, -1.0) if convention == "native" else (0.0, 1.0)
    with SpokenHand(cfg, num_envs=2) as env:
        env.reset(0)
        steps = [env.chunk_step(said([0.5])) for _ in range(6)]
        assert env.taken == [[number] * 2 for number in (1.0, 1.0, 1.0, -1.0, -1.0, -1.0)]
        env.finish_collection()
    numbers = [float(step.intervene_action[0, 0, 6]) for step in steps]  # type: ignore[index]
    assert numbers == [closed] * 3 + [opened] * 3
    np.testing.assert_array_equal(recorded(tmp_path / "set")[:6, 6], np.array(numbers, np.float32))
