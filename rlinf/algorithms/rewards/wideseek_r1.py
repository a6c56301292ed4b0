"""``reward_type: wideseek_r1``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.algorithms.rewards.base import TextReward
from rlinf.algorithms.rewards.extraction import accepted_answers, as_number, last_boxed, last_tagged
from rlinf.algorithms.rewards.searchr1 import normalized
from rlinf.config.schema.reward import WideSeekR1RewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError

_RULE = re.compile(r"\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?")
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+%?")


@dataclass(frozen=True)
class Table:
    """A table of a text.

    Attributes:
        columns: Their names, in lower case and without blanks.
        rows: Their cells, normalised; each row has as many as there are columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def select(self, columns: Sequence[str], keys: Sequence[str]) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Return the cells of columns by those of the key columns; of rows with equal keys the first."""
        found: dict[tuple[str, ...], tuple[str, ...]] = {}
        for row in self.rows:
            cells = dict(zip(self.columns, row, strict=True))
            found.setdefault(tuple(cells[key] for key in keys), tuple(cells[column] for column in columns))
        return found


class WideSeekR1Reward(TextReward):
    r"""How much of a table a response has found, as in WideSearch (arXiv 2508.07999); exact match of other answers.

    The reference is a table in Markdown or another answer, or a mapping with it as ``answer``. The mapping, or columns
    that ``data.metadata_keys`` lists, may have ``unique_columns`` (what identifies a row of the table; by default the
    first column) and ``required`` (the columns that count; by default all). The score of a table is the F1 of its
    cells: rows are those of the reference with the same key, and cells are compared after normalisation. A response's
    table is its last one; its other answer is the last in ``<answer>`` or ``\boxed{}``.
    """

    cfg: WideSeekR1RewardConfig

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        return [self._judge(query) for query in queries]

    def _judge(self, query: RewardQuery) -> float:
        response, reference = query.response, query.reference
        is_mapping = isinstance(reference, Mapping) and "answer" in reference
        keys = {**query.metadata, **(reference if is_mapping else {"answer": reference})}
        expected = last_table(keys["answer"]) if isinstance(keys["answer"], str) else None
        score = _exact_match(response, keys["answer"]) if expected is None else _item_f1(response, expected, keys)
        if score is None:
            return self.cfg.incorrect_reward
        wrong = self.cfg.incorrect_reward + self.cfg.format_reward
        return wrong + score * (self.cfg.correct_reward - wrong)


def last_table(text: str) -> Table | None:
    """Return the last table in Markdown of a text; None where there is none with a row."""
    lines = text.splitlines()
    rules = [index for index, line in enumerate(lines) if "|" in line and _RULE.fullmatch(line.strip())]
    if not rules or not rules[-1]:
        return None
    columns = tuple(_column(cell) for cell in _cells(lines[rules[-1] - 1]))
    rows = []
    for line in lines[rules[-1] + 1 :]:
        if "|" not in line:
            break
        cells = [_cell(cell) for cell in _cells(line)]
        rows.append(tuple([*cells, *[""] * len(columns)][: len(columns)]))
    return Table(columns, tuple(rows)) if rows else None


def _item_f1(response: str, expected: Table, reference: Mapping[str, Any]) -> float | None:
    """Return the F1 of the cells; None where the response has no table with the columns."""
    columns = [_column(name) for name in _names(reference, "required")] or list(expected.columns)
    keys = [_column(name) for name in _names(reference, "unique_columns")] or columns[:1]
    if missing := ({*columns, *keys} - set(expected.columns)):
        raise RewardError(
            f"The table of a reference has the columns {list(expected.columns)}, and not {sorted(missing)}, which its "
            "required or unique_columns name. Correct the dataset."
        )
    found = last_table(response)
    if found is None or not {*columns, *keys} <= set(found.columns):
        return None
    wanted, given = expected.select(columns, keys), found.select(columns, keys)
    right = sum(
        left == right
        for key in wanted.keys() & given.keys()
        for left, right in zip(wanted[key], given[key], strict=True)
    )
    return 2 * right / (len(columns) * (len(wanted) + len(given)))


def _exact_match(response: str, answer: Any) -> float | None:
    given = last_tagged(response, "answer") or last_boxed(response)
    if given is None:
        return None
    return float(normalized(given) in {normalized(text) for text in accepted_answers(answer)})


def _names(reference: Mapping[str, Any], key: str) -> list[str]:
    names = reference.get(key)
    return [] if names is None else accepted_answers(names)


def _cells(line: str) -> list[str]:
    return line.strip().removeprefix("|").removesuffix("|").split("|")


def _column(name: str) -> str:
    return "".join(name.lower().split())


def _cell(text: str) -> str:
    """Return a cell as it is compared: a number as one, other text as a short answer."""
    stripped = text.strip()
    number = as_number(stripped) if _NUMBER.fullmatch(stripped) else None
    return normalized(stripped) if number is None else f"{number:g}"
