"""When the scripted intervener takes over, and when it hands back."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from rlinf.config.registries import scripted_policies
from rlinf.config.schema.env import PixelReachEnvConfig
from rlinf.config.schema.intervention import ScriptedIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.scripted import ScriptedIntervener

ENV = PixelReachEnvConfig(
    env_type="pixel_reach", total_num_envs=1, max_episode_steps=9, max_steps_per_rollout_epoch=9, seed=3
)


@pytest.fixture(autouse=True)
def teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted policy that always does [1, 1]."""
    monkeypatch.setattr(scripted_policies, "_entries", {})
    scripted_policies.register("ones", lambda env: lambda obs: torch.ones(1, 1, 2))


def make(**keys: Any) -> ScriptedIntervener:
    cfg = ScriptedIntervenerConfig(intervener_type="scripted", policy="ones", **keys)
    return ScriptedIntervener(cfg, env=ENV, row=0)


def acts(intervener: ScriptedIntervener, actions: list[float], rewards: list[float] | None = None) -> list[bool]:
    """Return in which steps of an episode it acted, given the policy's actions and what they were rewarded with."""
    results = []
    for step, action in enumerate(actions):
        obs = {"states": torch.tensor([[float(step), action]]), "task_descriptions": ["reach"]}
        reward = 0.0 if step == 0 or rewards is None else rewards[step - 1]
        chosen = intervener.act(Situation(obs, torch.full((2,), action), reward, step))
        assert chosen is None or torch.equal(chosen, torch.ones(2))
        results.append(chosen is not None)
    return results


def test_it_takes_over_when_the_reward_stops_rising_and_only_for_a_while() -> None:
    rewards = [0.1, 0.2, 0.2, 0.1, 0.3, 0.3, 0.3, 0.3, 0.3]
    assert acts(make(stall_steps=2, hold_steps=2), [0.0] * 10, rewards) == [
        False, False, False, False, True, True, False, True, True, False
    ]  # fmt: skip


def test_a_reward_that_only_recovers_is_no_progress() -> None:
    assert acts(make(stall_steps=2, hold_steps=1), [0.0] * 4, [0.3, 0.1, 0.2]) == [False, False, False, True]


def test_progress_is_the_episodes_own() -> None:
    intervener = make(stall_steps=2, hold_steps=1)
    acts(intervener, [0.0, 0.0], [0.9])
    intervener.begin()
    assert not any(acts(intervener, [0.0] * 4, [0.1, 0.2, 0.3]))


def test_progress_below_the_least_does_not_count() -> None:
    rewards = [0.1, 0.2, 0.3, 0.4]
    assert not any(acts(make(stall_steps=2, min_progress=0.05), [0.0] * 5, rewards))
    assert acts(make(stall_steps=2, min_progress=0.5), [0.0] * 5, rewards) == [False, False, False, True, True]


def test_by_distance_it_hands_back_later_than_it_takes_over() -> None:
    keys = {"takeover_distance": 0.4, "release_share": 0.5, "hold_steps": 1}
    # Distances 0.3, 0.5, 0.3, 0.1, 0.3: the 0.3 in the middle is not yet close enough.
    assert acts(make(**keys), [0.7, 0.5, 0.7, 0.9, 0.7]) == [False, True, True, False, False]


def test_it_acts_for_so_many_steps_at_least() -> None:
    keys = {"takeover_distance": 0.4, "hold_steps": 3}
    assert acts(make(**keys), [0.5, 1.0, 1.0, 1.0]) == [True, True, True, False]


def test_by_chance_it_acts_as_often_as_it_says_and_the_same_again() -> None:
    first, again = (acts(make(takeover_probability=0.3, hold_steps=1), [0.0] * 400) for _ in range(2))
    assert first == again
    assert sum(first) / 400 == pytest.approx(0.3, abs=0.06)
    assert first != acts(make(takeover_probability=0.3, hold_steps=1), [0.1] * 400)
    cfg = ScriptedIntervenerConfig(intervener_type="scripted", policy="ones", takeover_probability=0.3, hold_steps=1)
    assert first != acts(ScriptedIntervener(cfg, env=replace(ENV, seed=4), row=0), [0.0] * 400)


def test_an_episode_begins_with_the_policy() -> None:
    intervener = make(takeover_distance=0.4, hold_steps=10)
    assert acts(intervener, [0.5, 1.0]) == [True, True]
    intervener.begin()
    assert acts(intervener, [1.0]) == [False]
