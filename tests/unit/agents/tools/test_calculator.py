"""Arithmetic, and nothing else."""

from __future__ import annotations

import pytest

from rlinf.agents.tools.calculator import calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12 * (3 + 4)", "84"),
        ("-7 // 2", "-4"),
        ("7 % 4 + 2 ** 10", "1027"),
        ("1 / 4", "0.25"),
        ("6 / 3", "2"),
        ("+1.5e3", "1500"),
        (" 2 ** -1", "0.5"),
    ],
)
def test_values(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')",
        "a",
        "'a' * 9",
        "(1).real",
        "[1][0]",
        "lambda: 1",
        "1 if 1 else 2",
        "True",
        "1j",
        "",
        "1 +",
        "(-1) ** 0.5",
        "9 ** 9 ** 9",
        "10 ** 4000 * 10 ** 4000",
        "1e308 * 10",
        "(" * 400 + ")" * 400,
        "1" * 1001,
    ],
)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):
        calculate(expression)


@pytest.mark.parametrize("expression", ["1 / 0", "5 % 0", "2.0 ** 100000"])
def test_what_has_no_value_says_so(expression: str) -> None:
    with pytest.raises(ArithmeticError):
        calculate(expression)
