"""Where the repository's files are, for the tests of this folder."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "rlinf"
GENERATED = {".git", ".venv", "build", "dist", "results", "outputs", "__pycache__"}


def package_files() -> list[Path]:
    """Return every Python file of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def project_files() -> list[Path]:
    """Return the files that belong to the project: those Git tracks or would, or all but generated ones without Git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        files = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        files = [path for path in ROOT.rglob("*") if not GENERATED & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in files if path.is_file())


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def relative(path: Path) -> str:
    """Return the path as written from the repository's root."""
    return path.relative_to(ROOT).as_posix()
