"""Choices below a question, and the right one as what is learned."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.data.datasets.choices import write_choices
from rlinf.data.datasets.text_rows import Place
from rlinf.errors import DatasetError

ROW = Place("row 0")


@pytest.mark.parametrize("choices", [["left", "right"], ("left", "right"), "['left', 'right']", '["left", "right"]'])
@pytest.mark.parametrize("answer", [1, "B", " b "])
def test_choices_are_lettered_and_the_right_one_is_the_answer(choices: Any, answer: Any) -> None:
    assert write_choices("Where?", choices, answer, ROW) == ("Where?\nChoices:\nA. left\nB. right\n", "B. right")


@pytest.mark.parametrize("answer", [2, -1, "C", "left", "", True, 1.0])
def test_an_answer_that_is_no_choice_is_refused(answer: Any) -> None:
    with pytest.raises(
        DatasetError, match=r"data\.answer_key: .* in row 0, .* 2 choices; .* from A to B.* from 0 to 1"
    ):
        write_choices("Where?", ["left", "right"], answer, ROW)


@pytest.mark.parametrize("choices", ["left, right", "'left'", [], None, ["x"] * 27])
def test_choices_that_are_no_list_are_refused(choices: Any) -> None:
    with pytest.raises(DatasetError, match=r"data\.choice_key: row 0 has no list of 1 to 26 choices"):
        write_choices("Where?", choices, 0, ROW)


def test_a_question_of_messages_has_no_choices() -> None:
    with pytest.raises(DatasetError, match=r"data\.prompt_key: received list in row 0; with data\.choice_key"):
        write_choices([{"role": "user", "content": "Where?"}], ["left"], 0, ROW)
