"""``reward_type: wideseek_r1``: F1 of a table's cells, exact match of other answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scored_responses import judge

from rlinf.config.schema.reward import WideSeekR1RewardConfig
from rlinf.errors import RewardError

WIDE = WideSeekR1RewardConfig(reward_type="wideseek_r1")
TABLE = """
| Country | Capital  | People (M) |
|---------|:--------:|-----------:|
| France  | Paris    | 68         |
| Japan   | Tokyo    | 1,125.0    |
"""


def respond(*rows: str, head: str = "| country | capital | People(M) |") -> str:
    return "\n".join(["Here it is.", "```markdown", head, "|---|---|---|", *rows, "```", "Anything else?"])


@pytest.mark.parametrize(
    ("rows", "score"),
    [
        (("| France | paris. | 68 |", "| Japan | Tokyo | 1125 |"), 1.0),
        (("| Japan | the Tokyo | 1,125 |", "| France | Paris | 68.00 |"), 1.0),
        # 3 of 3 cells of one row, of 6 that there are: precision 1, recall 1/2.
        (("| France | Paris | 68 |",), 2 / 3),
        # Of 9 cells that were given 5 are right, of 6 that there are.
        (("| France | Paris | 67 |", "| Japan | Tokyo | 1125 |", "| Peru | Lima | 34 |"), 2 * 5 / (9 + 6)),
        # A key that comes again counts once, as it came first.
        (("| France | Paris | 68 |", "| France | Lyon | 0 |", "| Japan | Tokyo | 1125 |"), 1.0),
        (("| Peru | Lima | 34 |",), 0.0),
        (("| France | Paris |", "| Japan | Tokyo | 1125 | more |"), 2 * 5 / 12),
    ],
)
def test_the_score_of_a_table_is_the_f1_of_its_cells(rows: tuple[str, ...], score: float) -> None:
    assert judge(WIDE, respond(*rows), TABLE) == pytest.approx(score)
    assert judge(WIDE, respond(*rows), {"answer": TABLE, "unique_columns": ["Country"]}) == pytest.approx(score)


def test_only_required_columns_count_and_rows_are_found_by_all_keys() -> None:
    response = respond("| France | Paris | 1 |", "| Japan | Kyoto | 2 |")
    assert judge(WIDE, response, {"answer": TABLE, "required": ["Country", "Capital"]}) == pytest.approx(3 / 4)
    keys = {"unique_columns": np.array(["Country", "Capital"])}
    assert judge(WIDE, response, {"answer": TABLE, **keys}) == pytest.approx(2 * 2 / 12)
    assert judge(WIDE, response, TABLE, metadata=keys) == pytest.approx(2 * 2 / 12)
    assert judge(WIDE, response, {"answer": TABLE, "unique_columns": "Country"}, metadata=keys) == pytest.approx(3 / 6)


@pytest.mark.parametrize(
    "response",
    [
        "",
        "Paris and Tokyo",
        respond(),
        respond("| France | Paris | 68 |", head="| country | town | People(M) |"),
        "|-|\n| x |",
    ],
)
def test_a_response_without_the_columns_finds_nothing(response: str) -> None:
    shaped = WideSeekR1RewardConfig(reward_type="wideseek_r1", incorrect_reward=-1.0, format_reward=0.5)
    assert judge(shaped, response, TABLE) == -1.0


def test_the_last_table_counts_and_a_right_form_is_worth_its_reward() -> None:
    shaped = WideSeekR1RewardConfig(
        reward_type="wideseek_r1", correct_reward=2.0, incorrect_reward=-1.0, format_reward=0.5
    )
    right, wrong = respond("| France | Paris | 68 |", "| Japan | Tokyo | 1125 |"), respond("| Peru | Lima | 34 |")
    assert judge(shaped, wrong + right, TABLE) == 2.0
    assert judge(shaped, right + wrong, TABLE) == -0.5
    half = respond("| France | Paris | 68 |")
    assert judge(shaped, half, TABLE) == pytest.approx(-0.5 + 2.5 * 2 / 3)


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<answer> the Paris </answer>", 1.0),
        ("It is \\boxed{Paris}.", 1.0),
        ("<answer>Lyon</answer>", 0.25),
        ("Paris", 0.0),
    ],
)
def test_other_answers_are_matched_exactly(response: str, score: float) -> None:
    cfg = WideSeekR1RewardConfig(reward_type="wideseek_r1", format_reward=0.25)
    for reference in ("Paris", ["Paris", "Paname"], {"answer": ["Paris"]}, {"answer": np.array(["Paris"])}):
        assert judge(cfg, response, reference) == score


@pytest.mark.parametrize("key", ["required", "unique_columns"])
def test_a_reference_without_its_own_columns_is_an_error(key: str) -> None:
    reference: dict[str, Any] = {"answer": TABLE, key: ["Anthem"]}
    with pytest.raises(RewardError, match=r"and not \['anthem'\]"):
        judge(WIDE, respond("| France | Paris | 68 |"), reference)
