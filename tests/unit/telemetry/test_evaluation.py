"""Records of an evaluation: means, confidence intervals, the table and the file."""

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from rlinf.telemetry.evaluation import (
    EvalEpisode,
    evaluation_table,
    mean_interval,
    mean_metrics,
    success_interval,
    write_episodes,
)


def episode(env: int, success: bool, task: str = "", total: float = 1.0) -> EvalEpisode:
    metrics = {"success_once": float(success), "return": total, "episode_len": 10.0}
    return EvalEpisode(epoch=0, env=env, number=0, task=task, metrics=metrics)


@pytest.mark.parametrize(
    ("successes", "count", "expected"),
    # By the formula of Wilson (1927), worked out by hand for z = 1.96.
    [(8, 10, (0.4902, 0.9433)), (0, 5, (0.0, 0.4345)), (5, 5, (0.5655, 1.0)), (50, 100, (0.4038, 0.5962))],
)
def test_the_interval_of_a_success_rate(successes: int, count: int, expected: tuple[float, float]) -> None:
    assert success_interval(successes, count) == pytest.approx(expected, abs=1e-4)


def test_the_interval_of_a_mean() -> None:
    # The variance of 10, 12, 14, 16 is (9 + 1 + 1 + 9) / 3.
    assert mean_interval([10.0, 12.0, 14.0, 16.0]) == pytest.approx((13.0, 1.959964 * math.sqrt(20 / 3) / 2))
    assert math.isnan(mean_interval([3.0])[1])


def test_means_over_all_and_over_each_task() -> None:
    episodes = [episode(0, True, "push"), episode(1, False, "push"), episode(2, True, "pull", total=4.0)]
    metrics = mean_metrics(episodes)
    assert metrics["eval/success_once"] == pytest.approx(2 / 3)
    assert metrics["eval/return"] == pytest.approx(2.0)
    assert (metrics["eval/success_once/pull"], metrics["eval/success_once/push"]) == (1.0, 0.5)
    assert "eval/return/pull" not in metrics
    assert not [name for name in mean_metrics([episode(0, True, "push")]) if name.endswith("push")]
    assert mean_metrics([]) == {}


def printed(episodes: list[EvalEpisode]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False).print(evaluation_table(episodes))
    return stream.getvalue()


def test_the_table_has_a_row_for_each_task_and_one_for_all() -> None:
    text = printed([episode(index, index < 8, "reach", total=2.0) for index in range(10)])
    assert "0.80 [0.49, 0.94]" in text
    assert "2 ± 0" in text
    assert "all" not in text
    text = printed([episode(0, True, "push"), episode(1, False, "pull")])
    assert [line.split()[0] for line in text.splitlines() if "[" in line] == ["pull", "push", "all"]


def test_the_file_holds_every_episode(tmp_path: Path) -> None:
    episodes = [episode(1, True, "push"), episode(0, False)]
    path = tmp_path / "evaluations" / "step_00000003.jsonl"
    write_episodes(path, sorted(episodes))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["env"] for record in records] == [0, 1]
    assert records[1] == {
        "epoch": 0,
        "env": 1,
        "number": 0,
        "task": "push",
        "metrics": {"success_once": 1.0, "return": 1.0, "episode_len": 10.0},
        "start": None,
    }
