"""Programs in answers, and the forms in which data sets hold tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlinf.algorithms.rewards.code_checks import (
    AssertTest,
    CallTest,
    StdinTest,
    last_program,
    parse_tests,
    same_output,
    same_value,
)
from rlinf.errors import RewardError


@pytest.mark.parametrize(
    ("response", "program"),
    [
        ("```python\na\n```\nor\n```python\nb\nc\n```", "b\nc\n"),
        ("```py\na\n```\n```cpp\nb\n```", "a\n"),
        ("```Python3\r\na\n```", "a\n"),
        ("```python\na", None),
        ("```python a```", None),
        ("```\na\n```", None),
        ("```pytb\na\n```", None),
        ("a", None),
    ],
)
def test_the_last_closed_block_is_the_program(response: str, program: str | None) -> None:
    assert last_program(response) == program


PAIRS = {"inputs": ["1\n", ["2", "3"]], "outputs": ["a\n", ["b", "c"]]}
STDIN = [StdinTest(stdin="1\n", expected="a\n"), StdinTest(stdin="2\n3", expected="b\nc")]
CALLS = {"fn_name": "f", "inputs": [[1, [2]], "1\n[2]"], "outputs": [[3], "[3]"]}


@pytest.mark.parametrize(
    ("reference", "tests"),
    [
        (PAIRS, STDIN),
        (json.dumps(PAIRS), STDIN),
        ([{"input": "1\n", "output": "a\n"}, {"input": "2\n3", "output": "b\nc"}], STDIN),
        (CALLS, [CallTest(function="f", arguments=[1, [2]], expected=[3])] * 2),
        ("assert f(1)", [AssertTest(code="assert f(1)")]),
        (["assert f(1)", "assert g()"], [AssertTest(code="assert f(1)"), AssertTest(code="assert g()")]),
        ({"test": "def check(c): ...", "entry_point": "f"}, [AssertTest(code="def check(c): ...\ncheck(f)\n")]),
    ],
)
def test_the_forms_of_data_sets_are_known(
    reference: str | list[str | dict[str, str]] | dict[str, Any], tests: list[StdinTest | CallTest | AssertTest]
) -> None:
    assert parse_tests(reference) == tests


@pytest.mark.parametrize(
    "reference", [None, 5, "", " ", [], {}, {"inputs": ["1"]}, {"inputs": ["1"], "outputs": []}, {"fn": "f"}, [None]]
)
def test_what_holds_no_tests_is_named(reference: int | str | list[None] | dict[str, str | list[str]] | None) -> None:
    with pytest.raises(RewardError, match="holds no tests"):
        parse_tests(reference)


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [("1 \n2\n\n", "1\n2", True), ("1\n\n2", "1\n2", False), (" 1", "1", False), ("", "\n", True)],
)
def test_outputs_agree_but_for_blanks_at_ends(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same


@pytest.mark.parametrize(
    ("returned", "expected", "same"),
    [
        ([1, 2], (1, 2), True),
        ([1, 2], [[1, 2]], True),
        (0.1 + 0.2, 0.3, True),
        ({"1": [2.0]}, {1: [2]}, True),
        ({"1": 2}, {2: 2}, False),
        ([1], [1, 2], False),
        ("1", 1, False),
        (None, [], False),
    ],
)
def test_values_agree_as_json(
    returned: float | str | list[int] | dict[str, int | list[float]] | None,
    expected: float | tuple[int, int] | list[int | list[int]] | dict[int, int | list[int]],
    same: bool,
) -> None:
    assert same_value(returned, expected) is same
