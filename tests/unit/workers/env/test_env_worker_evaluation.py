"""An evaluation counts every start state once: short episodes are no more frequent in it than long ones."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.envs import register_env
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.telemetry.evaluation import EvalEpisode, mean_metrics
from rlinf.workers.env import env_worker
from rlinf.workers.env.env_worker import EnvWorker

NUM_ENVS, LIMIT = 64, 10


class LuckEnv(VectorEnv):
    """Half of the start states, the even ones, succeed in their second step; the others never do."""

    def __init__(self, cfg: Any, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.observation_space = gymnasium.spaces.Dict({"states": gymnasium.spaces.Box(-1, 1, (4,), np.float32)})
        self.action_space = gymnasium.spaces.Discrete(2)
        self.seeds = np.zeros((2, num_envs), np.int64)

    def reset_idx(self, env_ids: Any, seeds: Any) -> dict[str, Any]:
        self.seeds[:, env_ids] = seeds, np.zeros(len(env_ids))
        return {"states": np.zeros((len(env_ids), 4), np.float32)}

    def step(self, actions: Any, active: Any) -> StepResult:
        self.seeds[1] += active
        success = (self.seeds[0] % 2 == 0) & (self.seeds[1] == 2)
        obs = {"states": np.zeros((self.num_envs, 4), np.float32)}
        return StepResult(obs, success.astype(np.float32), success, np.zeros_like(success), {"success": success})


class StandInPolicy:
    """Acts by zeros, [B, C]."""

    def __init__(self, num_chunks: int) -> None:
        self.num_chunks = num_chunks

    def receive(self, stage: int) -> torch.Tensor:
        return torch.zeros(NUM_ENVS, self.num_chunks, dtype=torch.int64)

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **keys: None


def evaluate(steps: int, *overrides: str, num_chunks: int = 1) -> list[EvalEpisode]:
    register_env("luck", LuckEnv)
    keys = (
        "~env.eval.init_params",
        "~env.eval.auto_reset",
        "env.eval.env_type=luck",
        f"env.eval.total_num_envs={NUM_ENVS}",
        f"env.eval.max_episode_steps={LIMIT}",
        f"env.eval.max_steps_per_rollout_epoch={steps}",
        f"+actor.model.num_action_chunks={num_chunks}",
        *overrides,
    )
    cfg: Any = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", list(keys)))
    worker = EnvWorker(cfg, num_rollout_workers=1, num_actor_workers=1)
    worker.policy = StandInPolicy(num_chunks)  # type: ignore[assignment]
    return worker.evaluate()


@pytest.mark.parametrize(
    ("steps", "num_chunks", "counted"),
    [(10, 1, 1), (19, 1, 1), (20, 1, 2), (60, 1, 6), (12, 4, 1), (20, 4, 1), (24, 4, 2)],
)
def test_every_environment_counts_equally_often(steps: int, num_chunks: int, counted: int) -> None:
    episodes = evaluate(steps, "env.eval.rollout_epoch=2", num_chunks=num_chunks)
    places = sorted((episode.epoch, episode.env, episode.number) for episode in episodes)
    assert places == [(e, env, k) for e in range(2) for env in range(NUM_ENVS) for k in range(counted)]


@pytest.mark.parametrize(
    ("steps", "limit", "num_chunks", "epochs", "wrappers", "counted"),
    [
        # 440 / 220 would be two episodes of 220 steps, but 55 chunks of 8 hold one of 28 chunks.
        (440, 220, 8, 4, "", 1),
        (63, 7, 3, 3, "", 7),
        (45, 11, 5, 3, "", 3),
        # An action that is repeated three times lets an episode of 10 steps end after four of them.
        (20, 10, 1, 3, "{name: action_repeat, num_repeats: 3}", 5),
        (14, 9, 2, 5, "{name: action_repeat, num_repeats: 3}", 3),
    ],
)
def test_an_ordered_evaluation_plays_every_start_exactly_once(
    steps: int, limit: int, num_chunks: int, epochs: int, wrappers: str, counted: int
) -> None:
    keys = [
        "env.eval.use_ordered_reset_state_ids=true",
        f"env.eval.max_episode_steps={limit}",
        f"env.eval.rollout_epoch={epochs}",
        f"+env.eval.wrappers=[{wrappers}]",
        f"env.eval.num_start_states={NUM_ENVS * epochs * counted}",
        *(f"env.train.max_steps_per_rollout_epoch={num_chunks}", "actor.global_batch_size=16"),
        "actor.micro_batch_size=16",
    ]
    episodes = evaluate(steps, *keys, num_chunks=num_chunks)
    assert sorted(str(episode.start) for episode in episodes) == sorted(map(str, range(NUM_ENVS * epochs * counted)))


def test_environments_beyond_the_start_states_do_not_count() -> None:
    keys = ("env.eval.use_ordered_reset_state_ids=true", "env.eval.rollout_epoch=2")
    episodes = evaluate(LIMIT, *keys, f"env.eval.num_start_states={2 * NUM_ENVS - 1}")
    assert sorted(str(episode.start) for episode in episodes) == sorted(map(str, range(2 * NUM_ENVS - 1)))


def test_an_episode_says_which_start_state_it_began_from() -> None:
    episodes = evaluate(2 * LIMIT, "env.eval.use_ordered_reset_state_ids=true", "env.eval.rollout_epoch=2")
    # Those with even seeds succeed.
    assert [episode.metrics["success_once"] for episode in episodes] == [
        float(episode.start is not None and episode.start % 2 == 0) for episode in episodes
    ]


def test_half_of_the_start_states_is_a_half() -> None:
    ordered = evaluate(2 * LIMIT, "env.eval.use_ordered_reset_state_ids=true")
    assert mean_metrics(ordered)["eval/success_once"] == 0.5
    assert mean_metrics(ordered)["eval/episode_len"] == (2 + LIMIT) / 2
    drawn = evaluate(6 * LIMIT)
    # 384 draws: five standard deviations are 0.13. Counting whatever has ended gave 0.8.
    assert abs(mean_metrics(drawn)["eval/success_once"] - 0.5) < 0.13


def test_repeated_actions_make_episodes_shorter_for_the_policy() -> None:
    wrappers = "+env.eval.wrappers=[{name: action_repeat, num_repeats: 5}]"
    assert len(evaluate(2 * LIMIT, wrappers)) == 10 * NUM_ENVS


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that the worker logs."""
    kept: list[str] = []
    monkeypatch.setattr(EnvWorker, "log_info", lambda _, message: kept.append(message))
    return kept


def test_a_long_evaluation_says_how_far_it_is(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("env.eval.rollout_epoch=3", "env.eval.use_ordered_reset_state_ids=true")
    evaluate(LIMIT, *keys)
    assert not lines, "an evaluation of seconds says nothing but its result"
    monkeypatch.setattr(env_worker, "_SAY_SECONDS", 0.0)
    evaluate(LIMIT, *keys)
    assert lines == [
        "Evaluation: 1 of 3 rollout epochs, 64 episodes of this worker, success 0.50.",
        "Evaluation: 2 of 3 rollout epochs, 128 episodes of this worker, success 0.50.",
    ]
