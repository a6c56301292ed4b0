"""``rlinf migrate``: rewrites recipes of the published system for this one, and says what became of their keys."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rlinf.cli.migrate_compose import compose_published, find_recipes
from rlinf.cli.migrate_recipe import Migration, migrate_recipe
from rlinf.config.published_keys import is_published
from rlinf.errors import ConfigError

_MEANINGS = {
    "complete": "valid, every key has the same effect here",
    "reduced": "valid, without what has no counterpart",
    "adapter": "valid; its simulator runs in a guest, through an adapter that is unproven",
    "fill in": "valid once the values marked ??? are given",
    "no counterpart": "cannot run: a section has no counterpart here",
    "problems": "not valid as it is",
    "refused": "cannot be read as a recipe",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf migrate``."""
    parser.add_argument("path", type=Path, metavar="FILE|FOLDER", help="a published recipe, or a folder of them")
    parser.add_argument(
        "--output", type=Path, default=Path("migrated"), metavar="DIR", help="where to write (default: ./migrated)"
    )
    parser.add_argument("--force", action="store_true", help="replace files that are there")


def run(args: argparse.Namespace) -> int:
    """Write the migrated recipes and print what became of their keys.

    Returns:
        0; 1 if one of several recipes could not be read.

    Raises:
        ConfigError: There is no recipe, it cannot be composed, or a file is in the way.
    """
    files = find_recipes(args.path)
    root = args.path if args.path.is_dir() else args.path.parent
    targets = {file: args.output / file.relative_to(root) for file in files}
    taken = [str(target) for target in targets.values() if target.exists()]
    if taken and not args.force:
        raise ConfigError(f"--output: {taken[0]} is there already. Pass --force to replace it, or another --output.")
    if args.path.is_file():
        migration = _migrate(args.path, targets[args.path])
        print("\n".join(_describe(migration)))
        print(f"\n{targets[args.path]}: {_outcome(migration)}")
        if not migration.missing:
            print(f"Next: rlinf plan {targets[args.path]}")
        return 0
    return _migrate_all(targets)


def _migrate_all(targets: dict[Path, Path]) -> int:
    """Migrate each recipe, with one line about it."""
    counts: Counter[str] = Counter()
    for file, target in targets.items():
        try:
            migration = _migrate(file, target)
        except ConfigError as error:
            counts["refused"] += 1
            print(f"{target}: refused\n  {error}", file=sys.stderr)
            continue
        counts[migration.outcome] += 1
        print(f"{target}: {migration.outcome}{''.join(f'; {note}' for note in _notes(migration))}")
    print(f"\n{sum(counts.values())} recipes:")
    for name, count in sorted(counts.items(), key=lambda item: list(_MEANINGS).index(item[0])):
        print(f"  {count:>4}  {name}: {_MEANINGS[name]}")
    return 1 if counts["refused"] else 0


def _migrate(file: Path, target: Path) -> Migration:
    """Migrate one recipe and write the result."""
    import yaml

    migration = migrate_recipe(compose_published(file))
    head = [f"# Migrated from {file.name} of the published system.", *(f"# {note}" for note in _notes(migration))]
    body = yaml.safe_dump(migration.recipe, sort_keys=False, allow_unicode=True, width=120)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join([*head, "", body]), encoding="utf-8")
    return migration


def _notes(migration: Migration) -> list[str]:
    """Return what keeps a recipe from running, one line for each kind."""
    missing = ", ".join(f"{path} ({what})" for path, what in migration.missing)
    kinds = (
        ("No counterpart", missing),
        ("Through an adapter", ", ".join(f"{key} ({what})" for key, what in migration.unproven)),
        ("To fill in", ", ".join(migration.to_fill_in)),
        ("Wrong", ", ".join(line.partition(":")[0] for line in migration.problems)),
    )
    return [f"{kind}: {text}" for kind, text in kinds if text]


def _outcome(migration: Migration) -> str:
    return f"{migration.outcome}: {_MEANINGS[migration.outcome]}"


def _describe(migration: Migration) -> list[str]:
    """Return everything that became of a recipe's keys."""
    groups = (
        ("Renamed or converted", [f"{old} -> {new}" for old, new in migration.renamed]),
        ("Without effect here, left out", [f"{key}: {why}" for key, why in migration.dropped]),
        ("Without a counterpart, left out", [f"{key}: {why}" for key, why in migration.lost]),
        ("Without a counterpart, and the recipe needs it", [f"{key}: {what}" for key, what in migration.missing]),
        ("Through an adapter", [f"{key}: {what}" for key, what in migration.unproven]),
        ("To fill in", migration.to_fill_in),
        ("Still wrong", migration.problems),
    )
    lines: list[str] = []
    for title, entries in groups:
        if entries:
            lines += ["", f"{title} ({len(entries)}):", *(f"  {entry}" for entry in entries)]
    return lines[1:]


@contextlib.contextmanager
def migration_hint(recipe: str) -> Iterator[None]:
    """Name ``rlinf migrate`` in the error about a recipe that is one of the published system.

    Args:
        recipe: The recipe as the command line names it; only a file can be one of those.

    Raises:
        ConfigError: As raised within, with the hint where it fits.
    """
    try:
        yield
    except ConfigError as error:
        if not _is_published_file(Path(recipe)):
            raise
        hint = f"This is a recipe of the published system: `rlinf migrate {recipe}` writes it for this one."
        raise type(error)(f"{error}\n{hint}") from error


def _is_published_file(path: Path) -> bool:
    if path.suffix not in {".yaml", ".yml"} or not path.is_file():
        return False
    try:
        return is_published(compose_published(path))
    except ConfigError:
        return False
