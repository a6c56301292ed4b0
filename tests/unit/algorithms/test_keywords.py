"""Functions of the former shape receive the fields that their parameters name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rlinf.algorithms.keywords import call_with_fields, from_fields, takes_keywords
from rlinf.errors import AlgorithmError


@dataclass
class Sizes:
    rows: int
    columns: int = 2


@dataclass
class Bounds:
    low: float = 0.1


def test_a_dataclass_takes_those_values_that_are_its_fields() -> None:
    assert from_fields(Sizes, {"rows": 3, "unknown": 1}) == Sizes(3, 2)
    with pytest.raises(AlgorithmError, match="Sizes requires 'rows'; received columns"):
        from_fields(Sizes, {"columns": 1})


def test_two_positional_parameters_are_the_present_shape() -> None:
    assert not takes_keywords(lambda inputs, cfg: None)
    assert not takes_keywords(lambda inputs, cfg, *, extra=1: None)
    assert takes_keywords(lambda rows, low, columns: None)
    assert takes_keywords(lambda **fields: None)
    assert not takes_keywords(lambda inputs: None, positional=1)


def test_a_call_receives_what_it_names_and_others_come_last() -> None:
    def named(rows: int, *, low: float, high: float = 5.0) -> tuple[float, ...]:
        return rows, low, high

    assert call_with_fields(named, Sizes(3), Bounds()) == (3, 0.1, 5.0)
    assert call_with_fields(named, Sizes(3), Bounds(), rows=7, high=1.0) == (7, 0.1, 1.0)
    assert call_with_fields(lambda **fields: fields, Sizes(3), Bounds()) == {"rows": 3, "columns": 2, "low": 0.1}


def test_what_is_missing_is_named_with_what_is_offered() -> None:
    def needs(rows: int, high: float) -> None:
        del rows, high

    with pytest.raises(AlgorithmError, match=r"needs requires 'high'; received columns, rows\."):
        call_with_fields(needs, Sizes(1))
