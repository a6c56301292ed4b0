"""The wrapper ``intervention``: what is executed, what is reported, and what each intervener is told."""

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.registries import interveners
from rlinf.config.schema.env import ActionRepeatConfig, PixelReachEnvConfig
from rlinf.config.schema.intervention import IntervenerConfig, InterventionConfig
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv
from rlinf.envs.interveners import Situation, register_intervener
from rlinf.errors import ConfigError, EnvironmentFailure, RegistryError

RIGHT = torch.tensor([1.0, 0.0])


class Recorder:
    """Acts to the right at every second step, and remembers what it was told."""

    made: list["Recorder"] = []
    answer = RIGHT

    def __init__(self, cfg: IntervenerConfig, *, env: Any, row: int) -> None:
        self.row, self.seen, self.episodes, self.is_closed = row, [], 0, False
        Recorder.made.append(self)

    def begin(self) -> None:
        self.episodes += 1

    def act(self, situation: Situation) -> torch.Tensor | None:
        self.seen.append(situation)
        return self.answer if situation.step % 2 else None

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(interveners, "_entries", dict(interveners._entries))
    register_intervener("recorder", Recorder, IntervenerConfig)
    Recorder.made = []
    return Recorder


def make_env(inner: Any = (), **keys: Any) -> VectorEnv:
    wrapper = InterventionConfig(name="intervention", intervener=IntervenerConfig(intervener_type="recorder"))
    defaults: dict[str, Any] = {"total_num_envs": 2, "max_episode_steps": 4, "image_size": 16}
    defaults["wrappers"] = [*inner, wrapper]
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach",
        max_steps_per_rollout_epoch=8,
        ignore_terminations=True,
        **{**defaults, **keys},
    )
    return make_vector_env(cfg, num_envs=2)


def test_an_action_of_the_intervener_is_executed_and_reported() -> None:
    left = -RIGHT.expand(2, 1, 2)
    with make_env() as env, make_env(wrappers=[]) as plain:
        env.reset(0)
        plain.reset(0)
        for number in range(6):
            step = env.chunk_step(left)
            takes_over = number % 4 % 2 == 1  # every second step of an episode of four
            expected = plain.chunk_step(-left if takes_over else left)
            assert torch.equal(step.obs["states"], expected.obs["states"])
            assert torch.equal(step.rewards, expected.rewards)
            assert step.intervene_flag.tolist() == [[takes_over]] * 2
            assert torch.equal(step.intervene_action, -left if takes_over else left)
            assert expected.intervene_flag is None


def test_interveners_are_told_what_the_policy_sees_and_wants(recorder: type[Recorder]) -> None:
    with make_env() as env:
        seen = [env.reset(0)["states"]]
        rewards = [torch.zeros(2)]
        for _ in range(5):
            step = env.chunk_step(0.3 * RIGHT.expand(2, 1, 2))
            seen.append(step.obs["states"])
            rewards.append(step.rewards[:, 0])
        for row, intervener in enumerate(recorder.made):
            assert intervener.row == row
            assert intervener.episodes == 2
            assert [situation.step for situation in intervener.seen] == [0, 1, 2, 3, 0]
            for number, situation in enumerate(intervener.seen):
                assert torch.equal(situation.obs["states"], seen[number][row : row + 1])
                assert torch.equal(situation.action, 0.3 * RIGHT)
                assert situation.reward == (rewards[number][row] if number % 4 else 0)


def test_nobody_is_asked_for_an_environment_at_rest(recorder: type[Recorder]) -> None:
    with make_env(auto_reset=False) as env:
        env.reset(0)
        steps = [env.chunk_step(RIGHT.expand(2, 1, 2)) for _ in range(6)]
        assert [len(intervener.seen) for intervener in recorder.made] == [4, 4]
        assert not steps[-1].intervene_flag.any()
        env.reset(1)
        env.chunk_step(RIGHT.expand(2, 1, 2))
        assert [len(intervener.seen) for intervener in recorder.made] == [5, 5]
    assert all(intervener.is_closed for intervener in recorder.made)


def test_an_action_that_was_not_executed_is_no_intervention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "act", lambda self, situation: self.answer)
    with make_env(auto_reset=False) as env:
        env.reset(0)
        for _ in range(4):
            env.chunk_step(RIGHT.expand(2, 1, 2))
        # Somebody looks at another start state of row 1, whose episode is over: it still rests.
        env.restart(np.array([1]), np.array([5]))
        steps = [env.chunk_step(-RIGHT.expand(2, 1, 2)) for _ in range(2)]
    assert not any(step.executed.any() or step.intervene_flag.any() for step in steps)


def test_repeated_actions_are_intervened_in_as_one() -> None:
    with make_env([ActionRepeatConfig(name="action_repeat", num_repeats=2)]) as env:
        env.reset(0)
        steps = [env.chunk_step(-RIGHT.expand(2, 1, 2)) for _ in range(2)]
        assert steps[1].intervene_flag.tolist() == [[True]] * 2
        assert torch.equal(steps[1].intervene_action, RIGHT.expand(2, 1, 2))


def test_chunks_are_refused() -> None:
    with make_env() as env:
        env.reset(0)
        with pytest.raises(ConfigError, match=r"num_action_chunks=1"):
            env.chunk_step(torch.zeros(2, 3, 2))


def test_an_action_of_another_shape_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "answer", torch.zeros(7))
    with make_env() as env:
        env.reset(0)
        env.chunk_step(torch.zeros(2, 1, 2))
        with pytest.raises(EnvironmentFailure, match=r"Recorder acted by \[7\] numbers; env_type=pixel_reach takes"):
            env.chunk_step(torch.zeros(2, 1, 2))


def test_unknown_interveners_are_told() -> None:
    with pytest.raises(RegistryError, match="spacemouse"):
        interveners.get("spacemous")
