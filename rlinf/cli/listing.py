"""``rlinf list``: the names that recipes can use, plug-ins included."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from rlinf.cli.arguments import add_config_dir, find_config_dir
from rlinf.config.recipes import list_recipes
from rlinf.config.registries import (
    advantages,
    envs,
    generation_engines,
    inference_backends,
    interveners,
    losses,
    models,
    rewards,
    tools,
    train_engines,
    workflows,
    wrappers,
)
from rlinf.registry import ConfigTable
from rlinf.utils.plugins import load_plugins

Row = tuple[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf list``."""
    parser.add_argument("kind", nargs="?", choices=sorted(LISTINGS), help="what to list; without it: what can be")
    add_config_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Print the names of one kind, each with a line about it; or the kinds that there are.

    Returns:
        0.

    Raises:
        ConfigError: A plug-in cannot be loaded, or ``--config-dir`` is not a folder.
    """
    load_plugins()
    folder = find_config_dir(args.config_dir)
    rows = list(LISTINGS[args.kind](folder)) if args.kind else [*_kinds(folder)]
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        print(f"{name:<{width}}  {text}".rstrip())
    return 0


def _kinds(config_dir: str | None) -> Iterable[Row]:
    for kind, listing in LISTINGS.items():
        names = [name for name, _ in listing(config_dir)]
        yield kind, f"{len(names)}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
    yield "", ""
    yield "rlinf list KIND", "shows all of a kind, with a line about each"


def _registry_rows(registry: ConfigTable, prefix: str = "") -> Iterable[Row]:
    for name in registry.names():
        yield f"{prefix}{name}", _summary(registry.get(name))


def _summary(cls: type) -> str:
    """Return the first line of a section's docstring, without the discriminator that it repeats."""
    line = (cls.__doc__ or "").strip().splitlines()[0] if cls.__doc__ else ""
    text = re.sub(r"^``[^`]+``(?: \([^)]*\))?: ", "", line)
    return "" if text.startswith(("``", "Keys of")) else text


def _algorithms(_: str | None) -> Iterable[Row]:
    yield from _registry_rows(advantages.configs, "adv_type=")
    yield from _registry_rows(losses.configs, "loss_type=")


def _engines(_: str | None) -> Iterable[Row]:
    for registry, key in ((train_engines, "actor.training_backend"), (inference_backends, "rollout.rollout_backend")):
        yield from ((name, key) for name in registry)
    for name, text in _registry_rows(generation_engines.configs):
        yield name, f"rollout.rollout_backend of language models{f': {text}' if text else ''}"


def _recipes(config_dir: str | None) -> Iterable[Row]:
    for name, path in list_recipes(config_dir).items():
        yield name, _first_comment(path)


def _first_comment(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        first = file.readline().strip()
    return first.lstrip("# ") if first.startswith("#") else str(path)


LISTINGS: dict[str, Callable[[str | None], Iterable[Row]]] = {
    "algorithms": _algorithms,
    "engines": _engines,
    "envs": lambda _: _registry_rows(envs.configs),
    "interveners": lambda _: _registry_rows(interveners.configs),
    "models": lambda _: _registry_rows(models.configs),
    "recipes": _recipes,
    "rewards": lambda _: _registry_rows(rewards.configs),
    "tools": lambda _: _registry_rows(tools.configs),
    "workflows": lambda _: _registry_rows(workflows.configs),
    "wrappers": lambda _: _registry_rows(wrappers.configs),
}
"""What can be listed: by kind, names with a line about each."""
