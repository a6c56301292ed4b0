"""The wrapper ``intervention``: what is executed, what is reported, and what each intervener is told."""

from typing import Any

import numpy as np
import pytest
import torch

from rlinf.config.registries import interveners
from rlinf.config.schema.env import ActionDelayConfig, ActionRepeatConfig, FrameStackConfig, PixelReachEnvConfig
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
    defaults: dict[str, Any] = {
        "total_num_envs": 2,
        "max_episode_steps": 4,
        "image_size": 16,
        "ignore_terminations": True,
    }
    defaults["wrappers"] = [*inner, wrapper]
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach",
        max_steps_per_rollout_epoch=8,
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


def test_an_operator_takes_over_within_a_chunk(recorder: type[Recorder]) -> None:
    """Each action of the chunk is the policy's or the operator's, who sees what the one before has led to."""
    left = -RIGHT.expand(2, 4, 2)
    with make_env() as env, make_env(wrappers=[]) as plain:
        seen = [env.reset(0)["states"]]
        plain.reset(0)
        step = env.chunk_step(left)
        expected = left.clone()
        expected[:, 1::2] = RIGHT
        reports = [plain.chunk_step(expected[:, number : number + 1]) for number in range(4)]
        seen += [report.obs["states"] for report in reports[:-1]]
        assert step.intervene_flag.tolist() == [[False, True, False, True]] * 2
        assert torch.equal(step.intervene_action, expected)
        assert torch.equal(step.rewards, torch.cat([report.rewards for report in reports], 1))
        assert torch.equal(step.obs["states"], reports[-1].obs["states"])
        assert step.episodes == reports[-1].episodes
        for row, intervener in enumerate(recorder.made):
            assert [situation.step for situation in intervener.seen] == [0, 1, 2, 3]
            assert intervener.episodes == 2
            for number, situation in enumerate(intervener.seen):
                assert torch.equal(situation.obs["states"], seen[number][row : row + 1])
                assert torch.equal(situation.action, -RIGHT)
                assert situation.reward == (step.rewards[row, number - 1] if number else 0)


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("num_processes", [0, 2])
@pytest.mark.parametrize(
    "inner",
    [
        [],
        [FrameStackConfig(name="frame_stack", num_frames=3, keys=["states"])],
        [ActionDelayConfig(name="action_delay", num_steps=2)],
        [ActionRepeatConfig(name="action_repeat", num_repeats=2)],
    ],
    ids=["plain", "frame_stack", "action_delay", "action_repeat"],
)
def test_an_operator_who_never_acts_changes_nothing(
    inner: list[Any], auto_reset: bool, num_processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes of 4, and of fewer where one ends earlier, in chunks of 3: ends lie within chunks."""
    monkeypatch.setattr(Recorder, "act", lambda self, situation: self.seen.append(situation))
    keys = {"auto_reset": auto_reset, "num_env_processes": num_processes, "ignore_terminations": False}
    generator = torch.Generator().manual_seed(0)
    with make_env(inner, **keys) as env, make_env(wrappers=inner, **keys) as plain:
        assert_equal(env.reset(0), plain.reset(0))
        executed = 0
        for _ in range(5):
            actions = torch.rand(2, 3, 2, generator=generator) * 2 - 1
            step, expected = env.chunk_step(actions), plain.chunk_step(actions)
            executed += int(step.executed.sum())
            assert not step.intervene_flag.any()
            assert_equal(step.obs, expected.obs)
            assert step.episodes == expected.episodes
            for name in ("rewards", "terminations", "truncations", "executed", "final_ids"):
                one, other = getattr(step, name), getattr(expected, name)
                assert one is None if other is None else torch.equal(one, other), name
            assert (step.final_obs is None) == (expected.final_obs is None)
            if step.final_obs is not None:
                assert_equal(step.final_obs, expected.final_obs)
        # Operators are asked for what is executed, and for nothing else.
        assert sum(len(intervener.seen) for intervener in Recorder.made) == executed


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name], name


def test_ends_of_a_chunk_are_in_the_order_of_the_environments() -> None:
    """Row 1 ends at the first action of the chunk, row 0 at its third."""
    with make_env(auto_reset=True) as env:
        env.reset(0)
        env.chunk_step(torch.zeros(2, 1, 2))
        env._tracker.steps[1] = 3
        step = env.chunk_step(torch.zeros(2, 3, 2))
        assert step.final_ids.tolist() == [0, 1]
        assert step.executed.tolist() == [[True, True, True], [True, False, False]]
        assert [episode["episode_len"] for episode in step.episodes] == [4, 4]
        assert step.final_obs["states"].shape[0] == 2
        # Row 1 acts again in the next chunk.
        assert env.chunk_step(torch.zeros(2, 3, 2)).executed.all()


def test_discrete_actions_are_refused() -> None:
    with make_env() as env:
        env.reset(0)
        with pytest.raises(ConfigError, match="discrete actions"):
            env.chunk_step(torch.zeros(2, 3, dtype=torch.int64))


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
