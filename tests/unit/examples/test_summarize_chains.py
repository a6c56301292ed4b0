"""What an evaluation of CALVIN is summed up to: tasks in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluations import summarize
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.envs.guests.calvin_chains import load_chains
from rlinf.runners.evaluation_record import evaluation_record
from rlinf.telemetry.evaluation import EvalEpisode

FILE = Path(__file__).parents[3] / "evaluations" / "calvin" / "calvin_d_eval.yaml"
VERSIONS = {"pybullet": "3.2.7"}


def recipe(*overrides: str) -> EmbodiedConfig:
    cfg = validate_cfg(load_recipe(str(FILE), ["actor.model.model_path=somewhere", *overrides]))
    assert isinstance(cfg, EmbodiedConfig)
    return cfg


def summary(cfg: EmbodiedConfig) -> dict[str, Any]:
    """Sum up an evaluation in which environment ``e`` solves ``e % 6`` tasks in a row."""
    env = cfg.env.eval
    assert env is not None
    episodes = [
        EvalEpisode(
            *(epoch, row, 0, "a sentence"),
            metrics={"return": env.reward_coef * float(row % 6)},
            start=row if env.use_fixed_reset_state_ids else epoch * env.total_num_envs + row,
        )
        for epoch in range(env.rollout_epoch)
        for row in range(env.total_num_envs)
    ]
    return summarize.summarize(cfg, episodes, evaluation_record(cfg, VERSIONS, None))


def starts(cfg: EmbodiedConfig) -> tuple[int, int, int]:
    found = summary(cfg)["starts"]
    return found["played"], found["distinct"], found["of"]


def test_every_published_chain_is_played_once() -> None:
    assert starts(recipe()) == (1000, 1000, 1000)
    fixed = recipe("env.eval.use_fixed_reset_state_ids=true", "env.eval.num_start_states=null")
    assert starts(fixed) == (1000, 8, 1000)


@pytest.mark.parametrize("reward_coef", [1.0, 5.0])
def test_tasks_in_a_row_and_their_mean(reward_coef: float) -> None:
    result = summary(recipe(f"env.eval.reward_coef={reward_coef}"))
    # Of eight environments two solve none, two solve one, and one each two to five.
    in_a_row = {count: cell["success"] for count, cell in result["in_a_row"].items()}
    assert in_a_row == {"1": 0.75, "2": 0.5, "3": 0.375, "4": 0.25, "5": 0.125}
    assert result["mean_length"] == 2.0
    assert result["all"]["successes"] == 125
    assert result["env"]["scene"] == "D"


def test_a_task_counts_where_it_was_tried() -> None:
    tasks = summary(recipe())["tasks"]
    tried = {task: 0 for task in tasks}
    solved = dict(tried)
    for number, (_, chain) in enumerate(load_chains()):
        length = number % 8 % 6
        for place, task in enumerate(chain[: length + 1]):
            tried[task] += 1
            solved[task] += place < length
    assert {task: cell["episodes"] for task, cell in tasks.items()} == tried
    assert {task: cell["successes"] for task, cell in tasks.items()} == solved
