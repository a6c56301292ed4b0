"""The table of planted faults: where its rows are, which belong to an area, and whether they still apply."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.fault import Fault

ROOT = Path(__file__).resolve().parents[2]
FAULTS = "tests/mutation/faults"


@dataclass(frozen=True, slots=True)
class Row:
    """A fault and the area that it is counted in.

    Attributes:
        area: Name of the file of ``tests/mutation/faults`` that lists it, without ``.py``.
        fault: The edit and its tests.
    """

    area: str
    fault: Fault


def load(root: Path = ROOT) -> list[Row]:
    """Return the rows of all files of ``tests/mutation/faults``, in the order of their names."""
    return [Row(path.stem, fault) for path in sorted((root / FAULTS).glob("*.py")) for fault in faults_of(path)]


def faults_of(path: Path) -> list[Fault]:
    """Return the ``FAULTS`` of one file."""
    spec = importlib.util.spec_from_file_location(f"mutation_faults_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.FAULTS)


def select(rows: list[Row], areas: list[str]) -> list[Row]:
    """Return the rows whose area or file begins with one of ``areas``; all rows without any."""
    return [row for row in rows if not areas or row.area.startswith(tuple(areas)) or in_paths(row.fault.file, areas)]


def in_paths(file: str, areas: list[str]) -> bool:
    """Return whether a source file lies at or below one of the paths."""
    return any("/" in area and file.startswith(area) for area in areas)


def edited(fault: Fault, root: Path = ROOT) -> str:
    """Return the text of the source file with the fault planted."""
    return (root / fault.file).read_text(encoding="utf-8").replace(fault.before, fault.after)


def problems(fault: Fault, root: Path = ROOT) -> Iterator[str]:
    """Yield why a row does not apply to the sources and tests as they are now."""
    source = root / fault.file
    if not source.is_file():
        yield f"{fault.file} does not exist"
        return
    count = source.read_text(encoding="utf-8").count(fault.before)
    if count != 1:
        yield f"'before' occurs {count} times in {fault.file}, not once"
        return
    if fault.before.split() == fault.after.split():
        yield "the edit changes nothing"
    try:
        compile(edited(fault, root), fault.file, "exec", dont_inherit=True)
    except SyntaxError as error:
        yield f"the edited file does not compile: {error}"
    if not fault.tests:
        yield "names no test"
    for test in fault.tests:
        if not exists(test, root):
            yield f"no such test: {test}"


def exists(test: str, root: Path) -> bool:
    """Return whether a test file or node id exists; parameters in brackets are not looked at."""
    path, *names = test.partition("[")[0].split("::")
    if not (root / path).exists():
        return False
    if not names:
        return True
    return set(names) <= definitions((root / path).read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=64)
def definitions(text: str) -> frozenset[str]:
    """Return the names of all functions and classes of a text."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
