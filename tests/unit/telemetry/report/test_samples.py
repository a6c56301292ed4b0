"""Answers on a page."""

import json
from pathlib import Path

from rlinf.telemetry.report.samples import describe_samples
from tests.unit.telemetry.report.report_runs import add_answers, add_episodes, answer


def test_answers_are_shown_by_source_and_step(tmp_path: Path) -> None:
    add_answers(tmp_path, 1, [answer("5", reward=0.0), answer("4", member=1)])
    add_answers(tmp_path, 2, [answer()])
    add_answers(tmp_path, 2, [answer("four")], source="evaluations")
    samples = describe_samples(tmp_path)
    assert [(step["step"], step["total"]) for step in samples["training"]] == [(1, 2), (2, 1)]
    assert samples["training"][0]["rows"][1] == {
        "prompt": "2+2=",
        "answer": "4",
        "reference": "4",
        "reward": 1.0,
        "terms": {"math": 1.0, "format": 0.5},
        "num_tokens": 2,
        "finish": "stop",
        "versions": [5, 6],
        "group": 3,
        "member": 1,
    }
    assert samples["evaluation"][0]["rows"][0]["answer"] == "four"


def test_a_run_without_answers_has_none(tmp_path: Path) -> None:
    add_episodes(tmp_path, 1, 2)
    assert describe_samples(tmp_path) is None


def test_many_long_answers_stay_within_bounds(tmp_path: Path) -> None:
    for step in range(60):
        add_answers(tmp_path, step, [answer(f"{number} " + "x" * 9000, group=number) for number in range(70)])
    samples = describe_samples(tmp_path)
    assert len(json.dumps(samples)) < 1_300_000
    steps = samples["training"]
    assert (steps[0]["step"], steps[-1]["step"]) == (0, 59)
    assert steps[0]["total"] == 70
    assert "more characters" in steps[0]["rows"][0]["answer"]
    half = describe_samples(tmp_path, num_runs=4)
    assert len(json.dumps(half)) < 400_000


def test_lines_that_are_no_answers_are_passed_over(tmp_path: Path) -> None:
    add_answers(tmp_path, 1, [answer()])
    path = tmp_path / "samples" / "step_00000001.jsonl"
    path.write_text(
        '{"x": 1}\nbroken\n{"prompt": "p", "answer": 3, "reward": "high", "versions": 1}\n' + path.read_text()[:-30]
    )
    (step,) = describe_samples(tmp_path)["training"]
    assert [(row["answer"], row["reward"]) for row in step["rows"]] == [("3", None)]
