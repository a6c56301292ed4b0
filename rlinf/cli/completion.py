"""``rlinf completion``: what makes a shell complete commands, recipes, keys and what ``rlinf list`` can list."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from rlinf.errors import RLinfError

_BASH = """\
_rlinf() {
  local IFS=$'\\n'
  COMPREPLY=($(compgen -W "$(rlinf completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" \\
    -- "${COMP_WORDS[COMP_CWORD]}"))
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _rlinf rlinf
"""
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -Uz bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete -c rlinf -a '(rlinf completion --words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'\n",
}
"""What a shell is to read, by its name."""
_OF_RECIPES = ("train", "eval", "collect", "plan")
"""Commands that take a recipe and overrides."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf completion``."""
    parser.add_argument("shell", nargs="?", choices=sorted(SCRIPTS), help="print the script for this shell")
    parser.add_argument(
        "--words", nargs=argparse.REMAINDER, metavar="WORD", help="print what may stand for the last of these words"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script of a shell, or candidates for a word, one in a line.

    Returns:
        0; 2 where neither a shell nor words are given.
    """
    if args.words is not None:
        print("\n".join(candidates(args.words)))
        return 0
    if args.shell is None:
        print('Name a shell, and let it read the script. In ~/.bashrc: eval "$(rlinf completion bash)"')
        return 2
    print(SCRIPTS[args.shell], end="")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return what may stand for the last of the words behind ``rlinf``; nothing where that is not known.

    Args:
        words: What has been typed; the last may be empty or begun.
    """
    *before, begun = words or [""]
    try:
        return sorted(word for word in _known(before) if word.startswith(begun))
    except RLinfError:
        # A recipe that cannot be read, a plug-in that cannot be loaded: running the command says so.
        return []


def _known(before: Sequence[str]) -> Iterable[str]:
    if not before:
        from rlinf.cli.main import COMMANDS

        return COMMANDS
    command, *rest = before
    named = [word for word in rest if not word.startswith("-") and "=" not in word]
    if command in _OF_RECIPES:
        return _keys(named[0]) if named else import_module("rlinf.config.recipes").list_recipes()
    if command == "list" and not named:
        return list(import_module("rlinf.cli.listing").LISTINGS)
    return SCRIPTS if command == "completion" else []


def _keys(recipe: str) -> list[str]:
    """Return the keys of a recipe, all defaults included, as overrides begin."""
    config = import_module("rlinf.config")
    return [f"{path}=" for path in _leaves(config.to_dict(config.validate_cfg(config.load_recipe(recipe))))]


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    for key, value in section.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and re.fullmatch(r"[\w.]+", path):
            yield from _leaves(value, f"{path}.")
        else:
            yield path
