"""Which versions of its simulator's packages a guest has, found without importing adapter or simulator."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from pathlib import Path


def installed_versions(adapter: str) -> dict[str, str]:
    """Return the versions of the packages that an adapter's ``PACKAGES`` names; empty for one that is not installed.

    Args:
        adapter: The adapter's name, as ``guest_server.load_adapter`` takes it.
    """
    versions = {}
    for package in named_packages(adapter):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = ""
    return versions


def named_packages(adapter: str) -> list[str]:
    """Return the constant ``PACKAGES`` of an adapter's source; empty without one, or without the source."""
    file = _source(adapter)
    if file is None or file.suffix != ".py":
        return []
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except SyntaxError:
        return []  # said when the adapter is imported
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", None) for target in node.targets] == ["PACKAGES"]:
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _source(adapter: str) -> Path | None:
    own = Path(__file__).with_name(f"{adapter}.py")
    if own.is_file():
        return own
    try:
        # Of a module within a package this would import the package, which may be the simulator's.
        spec = importlib.util.find_spec(adapter) if "." not in adapter else None
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)
