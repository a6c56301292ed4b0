"""What ``reward_type: code`` reads: the program in an answer, and the tests in a reference."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.errors import RewardError

_TAGS = {"py", "python", "python3"}
_RELATIVE_TOLERANCE = 1e-6
"""Between floats that functions return; what a test prints is compared exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinTest:
    """The program reads ``stdin`` and must print ``expected``."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """The function, or the method of that name of a class ``Solution``, must return ``expected``."""

    function: str
    arguments: list[Any]
    expected: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """The code, run after the program, must not raise."""

    code: str


CodeTest = StdinTest | CallTest | AssertTest


def last_program(response: str) -> str | None:
    """Return the last closed ``python`` block of an answer; None where there is none."""
    start = max(response.rfind("```py"), response.rfind("```Py"))
    tag, newline, rest = response[start + 3 :].partition("\n") if start >= 0 else ("", "", "")
    program, fence, _ = rest.partition("```")
    return program if newline and fence and tag.strip().lower() in _TAGS else None


def parse_tests(reference: Any) -> list[CodeTest]:
    """Return the tests that a reference holds.

    Args:
        reference: One of the forms that data sets use, or JSON text of one:
            ``{"inputs": [...], "outputs": [...]}``, with ``fn_name`` for calls; a list of ``{"input": ...,
            "output": ...}``, also with ``fn_name``; code or a list of codes that assert; ``{"test": code,
            "entry_point": name}`` where the code defines ``check``.

    Raises:
        RewardError: It is none of these, or holds no test.
    """
    if hasattr(reference, "tolist"):
        reference = reference.tolist()
    try:
        tests = list(_tests(_decoded(reference)))
    except (KeyError, TypeError, ValueError) as error:
        raise _unknown(reference) from error
    if not tests:
        raise _unknown(reference)
    return tests


def _tests(reference: Any) -> Iterator[CodeTest]:
    if isinstance(reference, str):
        if reference.strip():
            yield AssertTest(code=reference)
    elif isinstance(reference, Mapping) and "inputs" in reference:
        for given, expected in zip(reference["inputs"], reference["outputs"], strict=True):
            yield _test(reference.get("fn_name"), given, expected)
    elif isinstance(reference, Mapping) and "input" in reference:
        yield _test(reference.get("fn_name"), reference["input"], reference["output"])
    elif isinstance(reference, Mapping):
        call = f"\ncheck({reference['entry_point']})\n" if "entry_point" in reference else ""
        yield AssertTest(code=reference["test"] + call)
    elif isinstance(reference, Sequence):
        for entry in reference:
            yield from _tests(entry)
    else:
        raise TypeError(type(reference).__name__)


def _test(function: str | None, given: Any, expected: Any) -> CodeTest:
    if function:
        # As text, arguments are JSON, one on each line.
        arguments = [json.loads(line) for line in given.splitlines()] if isinstance(given, str) else list(given)
        return CallTest(function=function, arguments=arguments, expected=_decoded(expected))
    return StdinTest(stdin=_lines(given), expected=_lines(expected))


def _decoded(value: Any) -> Any:
    """Return what JSON text holds; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _lines(text: Any) -> str:
    return text if isinstance(text, str) else "\n".join(str(line) for line in text)


def same_output(printed: str, expected: str) -> bool:
    """Return whether two outputs agree but for blanks at the ends of lines and of the whole."""
    return _without_blanks(printed) == _without_blanks(expected)


def _without_blanks(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def same_value(returned: Any, expected: Any) -> bool:
    """Return whether a function returned what was expected, or the only entry of an expected list.

    Args:
        returned: What came back as JSON.
        expected: What the data set holds.
    """
    if _equal(returned, expected):
        return True
    return isinstance(expected, list) and len(expected) == 1 and _equal(returned, expected[0])


def _equal(returned: Any, expected: Any) -> bool:
    if isinstance(returned, list) and isinstance(expected, (list, tuple)):
        return len(returned) == len(expected) and all(map(_equal, returned, expected))
    if isinstance(returned, dict) and isinstance(expected, dict):
        keys = {str(key) for key in expected}  # JSON has no other keys
        return returned.keys() == keys and all(_equal(returned[str(key)], value) for key, value in expected.items())
    if isinstance(returned, float) and isinstance(expected, (int, float)):
        return math.isclose(returned, expected, rel_tol=_RELATIVE_TOLERANCE, abs_tol=1e-12)
    return bool(returned == expected)


def _unknown(reference: Any) -> RewardError:
    return RewardError(
        f"A reference holds no tests: {str(reference)[:100]!r} ({type(reference).__name__}); expected inputs with "
        "outputs, code that asserts, or JSON text of these. Correct the dataset, or which field is taken."
    )
