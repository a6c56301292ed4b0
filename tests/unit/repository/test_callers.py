"""Every public name of the package has a caller, or is listed here with the reason why it stays."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from repository_tree import PACKAGE, ROOT, package_files, parse, relative
from test_published_names import MEMBERS

FOREIGN = "called by the library whose class it derives from, or whose object it replaces"
DISPATCHED = "called through its ForwardType"
REGISTERED = "registered with its simulator, which builds it by its id"
OBSERVED = "observed by tests, which could not tell from outside"

WITHOUT_CALLER = {
    "check_dataset": "checks the data sets of other writers; a test of whole runs uses it",
    "DeviceTransfers.num_parked": OBSERVED,
    "EnsembleQPolicy.actor_forward": DISPATCHED,
    "FlowPolicy.velocity_forward": DISPATCHED,
    "FlowVLAPolicy.reconstruction_forward": DISPATCHED,
    "FlowVLAPolicy.velocity_forward": DISPATCHED,
    "IQLPolicy.actor_forward": DISPATCHED,
    "PutOnPlate25Env": REGISTERED,
    "PutOnPlate25Env.compute_dense_reward": FOREIGN,
    "QPolicy.actor_forward": DISPATCHED,
    "VelocityPolicy.velocity_forward": DISPATCHED,
    "MegatronLM.shared_embedding_or_output_weight": FOREIGN,
    "PlainRotation.as_quat": FOREIGN,
    "PlainRotation.from_matrix": FOREIGN,
    "_RandomStates.get_states": FOREIGN,
    "_RandomStates.set_states": FOREIGN,
    "_Stream.record_event": FOREIGN,
    "_Stream.wait_stream": FOREIGN,
    "SafePlanner.load_bytes": FOREIGN,
    "SafePlanner.lookup_tensor": FOREIGN,
    "SlotCache.get_seq_length": FOREIGN,
    "TokenFilterProcessor.is_argmax_invariant": FOREIGN,
    "TokenFilterProcessor.update_state": FOREIGN,
    "_MetadataUnpickler.find_class": FOREIGN,
    "_Pickler.persistent_id": FOREIGN,
    "_Unpickler.persistent_load": FOREIGN,
    "_Warnings.emit": FOREIGN,
}
"""Public names without a caller in the package, the examples, the tools and the documents' code, with the reason."""
PUBLISHED = {member.path for members in MEMBERS.values() for member in members}
"""They may have no caller."""


def public_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (qualified name, name) of a module's public functions, classes, constants and methods, not of aliases."""
    for node in tree.body:
        for name in defined_names(node):
            if not name.startswith("_"):
                yield name, name
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and not member.name.startswith("_"):
                    yield f"{node.name}.{member.name}", member.name


def defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
        return []  # an alias: it keeps an older name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def used_names(tree: ast.Module, *, is_package: bool) -> Iterator[str]:
    """Yield the names that a module reads, also by import path or ``getattr``; a package's re-exports are no use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if is_package:  # only "package.module:name"; tables of lazy exports hold bare names
                yield from re.findall(r":(\w+)$", node.value)
            elif "\n" not in node.value:
                yield from re.findall(r"\w+", node.value)


def names_in_documents() -> Iterator[str]:
    """Yield the names in code blocks and code spans of the documents."""
    for page in [ROOT / "README.md", *(ROOT / "docs" / "source-en").rglob("*.md")]:
        for block, span in re.findall(r"```(.+?)```|`([^`\n]+)`", page.read_text(encoding="utf-8"), re.DOTALL):
            yield from re.findall(r"\w+", block or span)


def without_caller() -> dict[str, str]:
    """Return each public name that nothing uses, with its file."""
    beside = [
        path
        for name in ("examples", "evaluations", "benchmarks", "toolkits", "docs")
        for path in (ROOT / name).rglob("*.py")
    ]
    used = set(names_in_documents())
    for path in [*package_files(), *beside]:
        used.update(used_names(parse(path), is_package=path.name == "__init__.py" and PACKAGE in path.parents))
    return {
        qualified: relative(path)
        for path in package_files()
        for qualified, name in public_names(parse(path))
        if name not in used and qualified not in PUBLISHED
    }


def test_every_public_name_has_a_caller_or_a_reason() -> None:
    unused = without_caller()
    surprising = [f"{path}: {name}" for name, path in unused.items() if name not in WITHOUT_CALLER]
    assert not surprising, "use them, delete them or give a reason in WITHOUT_CALLER:\n" + "\n".join(surprising)
    used_again = sorted(WITHOUT_CALLER.keys() - unused.keys())
    assert not used_again, f"these have callers by now, or are gone; remove them from WITHOUT_CALLER: {used_again}"


def test_a_name_without_a_caller_is_noticed() -> None:
    module = ast.parse(
        "class A:\n    def f(self):\n        pass\n\n\ndef g():\n    return A()\n\n\nLIMIT = 3\nOLD = A\n"
    )
    used = set(used_names(module, is_package=False))
    assert [name for name, plain in public_names(module) if plain not in used] == ["A.f", "g", "LIMIT"]
    assert set(used_names(ast.parse('x = {"Run": "module", "b": "package.module:Actor"}'), is_package=True)) == {
        "Actor"
    }
