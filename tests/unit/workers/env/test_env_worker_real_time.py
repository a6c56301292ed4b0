"""An evaluation in real time: what is executed while the policy computes, and what it is told of it."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.messages.embodied import PREVIOUS_ACTIONS, ChunkStep
from rlinf.envs import register_env
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.workers.env.env_worker import EnvWorker

SIZE, HORIZON, LIMIT = 3, 6, 12
EVENTS: list[Any] = []
"""What happened in order: numbers of executed actions, and what was sent."""
WIDTHS: list[int] = []
"""Actions of each chunk that the environments were given."""


class WatchedEnv(VectorEnv):
    """Writes down what the first of its environments executes; it shows the number of the last action."""

    def __init__(self, cfg: Any, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.observation_space = gymnasium.spaces.Dict({"states": gymnasium.spaces.Box(-1e9, 1e9, (4,), np.float32)})
        self.action_space = gymnasium.spaces.Box(-1e9, 1e9, (4,), np.float32)

    def reset_idx(self, env_ids: Any, seeds: Any) -> dict[str, Any]:
        return {"states": np.full((len(env_ids), 4), -1.0, np.float32)}

    def start_chunk_step(self, actions: torch.Tensor) -> None:
        WIDTHS.append(actions.shape[1])
        super().start_chunk_step(actions)

    def step(self, actions: Any, active: Any) -> StepResult:
        EVENTS.append(int(actions[0, 0]))
        never = np.zeros(self.num_envs, bool)
        return StepResult({"states": np.asarray(actions, np.float32)}, never.astype(np.float32), never, never, {})


class Planner:
    """Plans numbers: those of the ``k``-th plan begin at ``100 k``."""

    def __init__(self) -> None:
        self.sent: list[ChunkStep] = []

    def send(self, stage: int, chunk: ChunkStep, *, is_last: bool) -> None:
        EVENTS.append("last" if is_last else "asked")
        self.sent.append(chunk)

    def receive(self, stage: int) -> torch.Tensor:
        EVENTS.append("told")
        first = 100.0 * (len(self.sent) - 1)
        return (first + torch.arange(HORIZON)).view(1, HORIZON, 1).expand(2, HORIZON, 4).clone()

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **keys: EVENTS.append(method) if method == "end_epoch" else None


def evaluate(delay: int) -> tuple[EnvWorker, Planner]:
    register_env("watched", WatchedEnv)
    chunking = f"{{enabled: true, inference_delay: {delay}}}"
    keys = (
        "env.train.max_steps_per_rollout_epoch=39",
        "actor.global_batch_size=192",
        "actor.micro_batch_size=192",
        "env.eval.env_type=watched",
        "env.eval.total_num_envs=2",
        f"env.eval.max_episode_steps={LIMIT}",
        f"env.eval.max_steps_per_rollout_epoch={LIMIT}",
        "runner.only_eval=true",
        f"actor.model.num_action_chunks={SIZE}",
        f"actor.model.horizon={HORIZON}",
        f"+actor.model.real_time_chunking={chunking}",
    )
    cfg: Any = validate_cfg(load_recipe("langpick_grpo_openpi_tiny", list(keys)))
    worker = EnvWorker(cfg, num_rollout_workers=1, num_actor_workers=1)
    planner = Planner()
    worker.policy = planner  # type: ignore[assignment]
    EVENTS.clear()
    WIDTHS.clear()
    return worker, planner


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (0, ["asked", "told", 0, 1, 2, "asked", "told", 100, 101, 102, "asked"]),
        (1, ["asked", "told", 0, 1, 2, "asked", 3, "told", 101, 102, "asked", 103]),
        (2, ["asked", "told", 0, 1, 2, "asked", 3, 4, "told", 102, "asked", 103, 104]),
    ],
)
def test_planned_actions_are_executed_while_the_policy_computes(delay: int, expected: list[Any]) -> None:
    worker, _ = evaluate(delay)
    episodes = worker.evaluate()
    assert EVENTS[: len(expected)] == expected
    assert EVENTS[-2:] == ["last", "end_epoch"]
    assert EVENTS.count("told") == LIMIT // SIZE
    assert len([event for event in EVENTS if isinstance(event, int)]) == sum(WIDTHS) == LIMIT
    assert [episode.metrics["episode_len"] for episode in episodes] == [LIMIT, LIMIT]


def test_the_policy_is_told_what_was_planned_and_sees_where_that_begins() -> None:
    worker, planner = evaluate(1)
    worker.evaluate()
    assert PREVIOUS_ACTIONS not in planner.sent[0].obs
    for number, chunk in enumerate(planner.sent[1:]):
        expected = 100.0 * number + torch.arange(SIZE, HORIZON)
        assert torch.equal(chunk.obs[PREVIOUS_ACTIONS][0, :, 0], expected)
        # The action before those: what is executed meanwhile is not seen yet.
        assert chunk.obs["states"][0, 0] == expected[0] - 1
