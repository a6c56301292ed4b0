"""Arguments that the ``rlinf`` command and the example scripts share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--config-dir``, also as ``--config-path``."""
    parser.add_argument(
        "--config-dir",
        "--config-path",
        dest="config_dir",
        metavar="DIR",
        help="folder with recipes, searched before ./examples/*/config and the packaged ones",
    )


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add the positional ``key=value`` overrides."""
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="overrides in Hydra's grammar, for example runner.max_steps=10",
    )


def parse_mixed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse arguments whose overrides may stand before, between and after options.

    Args:
        parser: The parser.
        argv: Arguments without the program's name; None takes the process's.
    """
    args, rest = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    unknown = [text for text in rest if text.startswith("-") or not hasattr(args, "overrides")]
    if unknown:
        hint = ""
        if hasattr(args, "overrides"):
            hint = " (keys of the recipe are written without dashes: runner.max_steps=10)"
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if rest:
        args.overrides = [*args.overrides, *rest]
    return args


def find_config_dir(given: str | None) -> str | None:
    """Return the folder that ``--config-dir`` means: relative to the working directory, or else to the script."""
    if given is None or Path(given).is_dir():
        return given
    beside_script = Path(sys.argv[0]).resolve().parent / given
    return str(beside_script) if beside_script.is_dir() else given
