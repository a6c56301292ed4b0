"""Style rules that no linter knows. Each test collects all offenders, so that one run names everything to mend."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from repository_tree import PACKAGE, ROOT, package_files, parse, relative

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 60
# Each of them has one meaning for each of its packages: a schema and what it configures, a contract (base), ...
MAX_SHARED_MODULE_NAMES = 12
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def python_files() -> list[Path]:
    """Return the package's files and those of the folders beside it that hold Python."""
    beside = [
        path
        for name in ("examples", "tests", "benchmarks", "toolkits", "evaluations", "docs")
        for path in (ROOT / name).rglob("*.py")
    ]
    return [*package_files(), *sorted(beside)]


def functions(tree: ast.Module) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(tree) if isinstance(node, FunctionNode))


def assert_none(offenders: list[str]) -> None:
    """Fail with all offenders, one per line."""
    assert not offenders, "\n" + "\n".join(offenders)


def body_lines(function: FunctionNode) -> int:
    """Count a function's lines from ``def`` to the end, without its docstring."""
    first, last = function.lineno, function.end_lineno or function.lineno
    docstring = 0
    statement = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        docstring = (statement.end_lineno or statement.lineno) - statement.lineno + 1
    return last - first + 1 - docstring


def test_files_are_short() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    too_long = [
        f"{relative(path)}:{function.lineno} {function.name}: {body_lines(function)} lines"
        for path in python_files()
        for function in functions(parse(path))
        if body_lines(function) > MAX_FUNCTION_LINES
    ]
    assert_none(too_long)


def test_a_docstring_does_not_count_as_length() -> None:
    tree = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n')
    assert body_lines(next(functions(tree))) == 2


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{relative(path)}:{node.lineno}"
        for path in package_files()
        if PACKAGE / "cli" not in path.parents
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert_none(printing)


def reads_config_loosely(node: ast.AST) -> bool:
    """Tell ``cfg.get(...)``, ``self.cfg.x.get(...)`` and ``getattr(cfg, ...)``: a default outside the dataclasses."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return names_config(node.func.value)
    is_getattr = isinstance(node.func, ast.Name) and node.func.id == "getattr"
    return is_getattr and bool(node.args) and names_config(node.args[0])


def names_config(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        if node.attr in {"cfg", "_cfg"}:
            return True
        node = node.value
    return isinstance(node, ast.Name) and node.id == "cfg"


def test_defaults_live_in_the_configuration_dataclasses_only() -> None:
    loose = [
        f"{relative(path)}:{node.lineno}"
        for path in package_files()
        if PACKAGE / "config" not in path.parents
        for node in ast.walk(parse(path))
        if reads_config_loosely(node) and isinstance(node, ast.expr)
    ]
    assert_none(loose)


def test_loose_reading_is_recognised() -> None:
    caught = ["cfg.get('a', 1)", "self.cfg.actor.get('a')", "getattr(cfg, 'a', 1)", "getattr(self._cfg.env, 'a')"]
    allowed = ["queue.get('a')", "getattr(model, 'a')", "cfg.actor.lr"]
    assert [reads_config_loosely(ast.parse(text, mode="eval").body) for text in caught] == [True] * len(caught)
    assert [reads_config_loosely(ast.parse(text, mode="eval").body) for text in allowed] == [False] * len(allowed)


def test_every_module_says_what_it_is_for() -> None:
    silent = [relative(path) for path in package_files() if not ast.get_docstring(parse(path))]
    assert_none(silent)


def test_every_room_of_the_house_states_its_rules() -> None:
    """A top-level package opens with a paragraph: what it owns, what it may not import, where to extend it."""
    silent = []
    for init in sorted(PACKAGE.glob("*/__init__.py")):
        docstring = ast.get_docstring(parse(init)) or ""
        if len(docstring.split()) < 20 or not re.search(
            r"\bimports?\b|knows? (neither|no)\b", docstring, re.IGNORECASE
        ):
            silent.append(relative(init))
    assert_none(silent)


def test_packages_are_imported_by_absolute_name() -> None:
    """Guests load their folder under another name, next to an ``rlinf`` of their own."""
    dotted = [
        f"{relative(path)}:{node.lineno}"
        for path in package_files()
        if path.parent != PACKAGE / "envs" / "guests"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert_none(dotted)


def test_nothing_moves_to_a_hard_coded_device() -> None:
    """A device comes from the worker; ``.cuda()`` would shut out every machine without a GPU."""
    hard_coded = [
        f"{relative(path)}:{node.lineno}"
        for path in package_files()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda"
    ]
    assert_none(hard_coded)


def test_unit_tests_mirror_the_package() -> None:
    """Each folder under tests/unit is a folder of the package (``repository`` and ``examples`` apart)."""
    strangers = []
    for folder in sorted(path for path in (ROOT / "tests" / "unit").rglob("*") if path.is_dir()):
        place = folder.relative_to(ROOT / "tests" / "unit")
        if place.parts[0] in {"repository", "examples", "benchmarks"} or "__pycache__" in place.parts:
            continue
        if not (PACKAGE / place).is_dir():
            strangers.append(relative(folder))
    assert_none(strangers)


def test_few_modules_share_a_name() -> None:
    """A module is named after its main noun; a name that two share sends the reader to the wrong one."""
    places: dict[str, list[str]] = {}
    for path in package_files():
        if path.name not in {"__init__.py", "__main__.py"}:
            places.setdefault(path.name, []).append(relative(path))
    shared = [" ".join(paths) for paths in places.values() if len(paths) > 1]
    assert len(shared) <= MAX_SHARED_MODULE_NAMES, "\n" + "\n".join(shared)


def test_test_files_have_unique_names() -> None:
    """Test folders are not packages, so two files of one name would shadow each other."""
    names: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name != "conftest.py":
            names.setdefault(path.name, []).append(relative(path))
    assert {name: paths for name, paths in names.items() if len(paths) > 1} == {}
