"""The checker accepts environments that keep the rules and names the rule that a broken one breaks."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from batch_env import BatchEnv, make_config, make_single

from rlinf.data.messages.embodied import ChunkStep
from rlinf.envs.conformance import ConformanceError, check_vector_env


@pytest.mark.parametrize("make_env", [BatchEnv, make_single])
@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("ignore_terminations", [True, False])
def test_good_environments_pass(make_env: Any, auto_reset: bool, ignore_terminations: bool) -> None:
    cfg = make_config(group_size=2, auto_reset=auto_reset, ignore_terminations=ignore_terminations)
    with make_env(cfg, num_envs=4) as env:
        check_vector_env(env)


class IgnoresSeed(BatchEnv):
    def reset_idx(self, env_ids: Any, seeds: Any) -> Any:
        return super().reset_idx(env_ids, np.zeros_like(seeds))


class KeepsState(BatchEnv):
    calls = 0

    def reset_idx(self, env_ids: Any, seeds: Any) -> Any:
        self.calls += 1
        return super().reset_idx(env_ids, seeds + self.calls)


class SplitsGroups(BatchEnv):
    def reset_idx(self, env_ids: Any, seeds: Any) -> Any:
        return super().reset_idx(env_ids, seeds + env_ids)


class ResetsAll(BatchEnv):
    def reset_idx(self, env_ids: Any, seeds: Any) -> Any:
        every = np.arange(self.num_envs)
        super().reset_idx(every, np.resize(seeds, self.num_envs))
        return super().reset_idx(env_ids, seeds)


class AnswersAllRows(BatchEnv):
    def reset_idx(self, env_ids: Any, seeds: Any) -> Any:
        super().reset_idx(env_ids, seeds)
        return self.observe()


class ReusesMemory(BatchEnv):
    memory: Any = None

    def observe(self) -> Any:
        obs = super().observe()
        if self.memory is None:
            self.memory = obs["states"]
        self.memory[:] = obs["states"]
        return {**obs, "states": self.memory}

    def reset_idx(self, env_ids: Any, seeds: Any) -> Any:
        super().reset_idx(env_ids, seeds)
        obs = self.observe()
        return (
            obs
            if len(env_ids) == self.num_envs
            else {
                key: [value[i] for i in env_ids] if isinstance(value, list) else value[env_ids]
                for key, value in obs.items()
            }
        )


class WrongDtype(BatchEnv):
    def observe(self) -> Any:
        obs = super().observe()
        return {**obs, "states": obs["states"].astype(np.float64)}


class WrongShape(BatchEnv):
    def observe(self) -> Any:
        obs = super().observe()
        return {**obs, "states": obs["states"][:, :1]}


class ForgetsKey(BatchEnv):
    def observe(self) -> Any:
        return {"states": super().observe()["states"]}


class DrawsNoise(BatchEnv):
    def step(self, actions: Any, active: Any) -> Any:
        result = super().step(actions, active)
        return type(result)(
            result.obs, np.random.default_rng().normal(size=self.num_envs), result.terminations, result.truncations
        )


class NotANumber(BatchEnv):
    def step(self, actions: Any, active: Any) -> Any:
        result = super().step(actions, active)
        return type(result)(result.obs, result.rewards * np.nan, result.terminations, result.truncations)


class Answers(BatchEnv):
    """Overrides the answer of a whole chunk."""

    def finish_chunk_step(self) -> ChunkStep:
        return self.change(super().finish_chunk_step())

    def change(self, step: ChunkStep) -> ChunkStep:
        raise AssertionError


class RewardsBehindDone(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, rewards=step.rewards + 1.0)


class ActsBehindDone(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, executed=step.executed | True)


class TerminatesAndTruncates(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, truncations=step.truncations | step.terminations)


class NeverDone(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        nothing = step.executed & False
        return replace(
            step,
            terminations=nothing,
            truncations=nothing,
            executed=~nothing,
            final_obs=None,
            final_ids=None,
            episodes=(),
        )


class WholeNumbers(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, rewards=step.rewards.double())


class OneColumnMore(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, executed=torch.cat([step.executed, step.executed[:, :1]], dim=1))


class SkipsAnAction(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        executed = step.executed.clone()
        executed[:, 0] = False
        return replace(step, executed=executed)


class EndsBehindDone(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, terminations=step.terminations | ~step.executed)


class StopsWithoutDone(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        executed = step.executed.clone()
        executed[:, -1] = False
        rewards = torch.where(executed, step.rewards, 0.0)
        nothing = executed & False
        return replace(step, executed=executed, rewards=rewards, terminations=nothing, truncations=nothing)


class EndsTwice(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, episodes=(*step.episodes, *step.episodes))


class ForgetsFinalObs(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, final_obs=None)


class LosesAMetric(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, episodes=tuple({"return": metrics["return"]} for metrics in step.episodes))


class CountsOneStepMore(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        longer = [{**metrics, "episode_len": metrics["episode_len"] + 1} for metrics in step.episodes]
        return replace(step, episodes=tuple(longer))


class SucceedsAtTheEndOnly(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        only = {"success_once": 0.0, "success_at_end": 1.0}
        return replace(step, episodes=tuple({**metrics, **only} for metrics in step.episodes))


class Terminates(Answers):
    """Says of each truncation that it was a termination."""

    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, terminations=step.truncations, truncations=step.truncations & False)


class ForgetsFinal(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, final_ids=None, final_obs=None, episodes=())


class WrongMetrics(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        return replace(step, episodes=tuple({**metrics, "return": 1e6} for metrics in step.episodes))


class ShowsTerminalState(Answers):
    def change(self, step: ChunkStep) -> ChunkStep:
        if step.final_obs is None or step.final_ids is None:
            return step
        states = step.obs["states"].clone()
        states[step.final_ids] = step.final_obs["states"]
        return replace(step, obs={**step.obs, "states": states})


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (IgnoresSeed, "reset-seed"),
        (KeepsState, "reset-determinism"),
        (SplitsGroups, "group-seeding"),
        (ResetsAll, "reset-isolation"),
        (AnswersAllRows, "reset-rows"),
        (ReusesMemory, "obs-aliasing"),
        (WrongDtype, "obs-dtype"),
        (WrongShape, "obs-rows"),
        (ForgetsKey, "obs-keys"),
        (DrawsNoise, "repeatability"),
        (NotANumber, "rewards-finite"),
        (RewardsBehindDone, "masked-rewards"),
        (ActsBehindDone, "mid-chunk-done"),
        (TerminatesAndTruncates, "done-exclusive"),
        (NeverDone, "episode-end"),
        (ForgetsFinal, "final-rows"),
        (WholeNumbers, "step-shapes"),
        (OneColumnMore, "step-shapes"),
        (SkipsAnAction, "executed-prefix"),
        (EndsBehindDone, "done-executed"),
        (StopsWithoutDone, "chunk-executed"),
        (EndsTwice, "final-rows"),
        (ForgetsFinalObs, "final-rows"),
        (LosesAMetric, "episode-metrics"),
        (CountsOneStepMore, "episode-metrics"),
        (SucceedsAtTheEndOnly, "episode-metrics"),
        (WrongMetrics, "episode-metrics"),
        (ShowsTerminalState, "auto-reset"),
    ],
)
def test_a_broken_rule_is_named(broken: type[BatchEnv], rule: str) -> None:
    cfg = make_config(group_size=2)
    with broken(cfg, num_envs=4) as env, pytest.raises(ConformanceError) as info:
        check_vector_env(env, max_chunks=20)
    assert info.value.rule == rule
    assert str(info.value).startswith(f"[{rule}]")


def test_a_termination_where_none_counts_is_named() -> None:
    cfg = make_config(ignore_terminations=True)
    with Terminates(cfg, num_envs=2) as env, pytest.raises(ConformanceError) as info:
        check_vector_env(env, max_chunks=20)
    assert info.value.rule == "ignore-terminations"


def test_acting_while_at_rest_is_named() -> None:
    with ActsBehindDone(make_config(auto_reset=False), num_envs=2) as env, pytest.raises(ConformanceError) as info:
        check_vector_env(env, num_action_chunks=1)
    assert info.value.rule == "rest"


def test_the_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(ConformanceError("rest", "it moved")))
    assert (error.rule, str(error)) == ("rest", "[rest] it moved")
