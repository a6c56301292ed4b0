"""Tests stand where their modules stand: ``rlinf/a/b.py`` is tested by ``tests/unit/a/test_b.py``.

Where a module needs several files, they are ``tests/unit/a/test_b_<aspect>.py`` or ``tests/unit/a/b/test_<aspect>.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath

from repository_tree import PACKAGE, ROOT, package_files, parse

LEAST_SHARE = 0.80
UNIT_TESTS = ROOT / "tests" / "unit"


def computes(tree: ast.Module) -> bool:
    """Return whether a module has a function with a body; contracts and plain records need no test of their own."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(not is_declaration(statement) for function in functions for statement in function.body)


def is_declaration(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Raise | ast.Pass)


def module_of(test: str, modules: Iterable[str]) -> str | None:
    """Return the module that a test file stands for, the one with the longest name; None if there is none.

    Args:
        test: Path of the test file below ``tests/unit``.
        modules: Paths of modules below the package, without suffix.
    """
    path = PurePosixPath(test).with_suffix("")
    words = path.name.removeprefix("test_").split("_")
    names = [str(path.parent / "_".join(words[:count])) for count in range(len(words), 0, -1)]
    known = set(modules)
    return next((name for name in [*names, str(path.parent)] if name in known), None)


def test_modules_have_tests_at_their_place() -> None:
    paths = {str(path.relative_to(PACKAGE).with_suffix("")): path for path in package_files()}
    modules = {name: path for name, path in paths.items() if path.name != "__init__.py"}
    tests = (str(path.relative_to(UNIT_TESTS)) for path in UNIT_TESTS.rglob("test_*.py"))
    tested = {module_of(test, modules) for test in tests}
    computing = {name for name, path in modules.items() if computes(parse(path))}
    share = len(computing & tested) / len(computing)
    without = "\n".join(sorted(computing - tested))
    assert share >= LEAST_SHARE, f"{share:.3f} of {len(computing)} modules have tests at their place; not:\n{without}"


def test_a_test_stands_for_the_module_with_the_longest_name() -> None:
    modules = ["envs/base", "envs/base_rules", "scheduler/comm/work", "registry"]
    assert module_of("envs/test_base_saved.py", modules) == "envs/base"
    assert module_of("envs/test_base_rules_old.py", modules) == "envs/base_rules"
    assert module_of("scheduler/comm/work/test_given_up.py", modules) == "scheduler/comm/work"
    assert module_of("test_registry.py", modules) == "registry"
    assert module_of("envs/test_basement.py", modules) is None


def test_contracts_and_records_compute_nothing() -> None:
    contract = (
        'class A:\n    """A."""\n\n    def f(self) -> int:\n        """F."""\n        raise NotImplementedError\n'
    )
    assert not computes(ast.parse(contract))
    assert not computes(ast.parse("class A:\n    a: int = 1\n"))
    assert computes(ast.parse("class A:\n    def f(self) -> int:\n        return 1\n"))
