"""``tool_type: calculator``: arithmetic."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema, make_schema

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_MAX_CHARS = 1000
_MAX_BITS = 4096
"""Of an integer: powers grow beyond all memory otherwise."""


class CalculatorTool(Tool):
    """Evaluates numbers with ``+ - * / // % **`` and brackets; nothing else is run."""

    @property
    def schema(self) -> ToolSchema:
        """See ``Tool``."""
        return make_schema(
            self.name, "Evaluates an arithmetic expression.", expression=("string", "For example (12 + 3) * 4.")
        )

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See ``Tool``."""
        return ToolResult(calculate(arguments["expression"]))


def calculate(expression: str) -> str:
    """Return the value of an arithmetic expression.

    Raises:
        ValueError: It is something else, or too long or large.
        ArithmeticError: It has no value.
    """
    if len(expression) > _MAX_CHARS:
        raise ValueError(f"the expression is longer than {_MAX_CHARS} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _evaluate(tree.body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an arithmetic expression: {expression}") from error
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return str(value)


def _evaluate(node: ast.expr) -> int | float:
    if isinstance(node, ast.Constant) and type(node.value) in {int, float}:
        return node.value  # type: ignore[return-value]  # one of these two
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _checked(_UNARY[type(node.op)](_evaluate(node.operand)))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Pow) and isinstance(left, int) and left.bit_length() * abs(right) > _MAX_BITS:
            raise ValueError("the power is too large")
        return _checked(_BINARY[type(node.op)](left, right))
    raise ValueError(f"only numbers, + - * / // % ** and brackets can be evaluated, not {type(node).__name__}")


def _checked(value: Any) -> int | float:
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("the value is not a finite real number")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError("the value is too large")
    return value  # type: ignore[no-any-return]
