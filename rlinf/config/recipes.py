"""Finds recipes and composes them with Hydra; nothing is started, written or logged."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rlinf
from rlinf.errors import ConfigError
from rlinf.utils.secrets import hide_in_argument

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

_PLACEMENT = "cluster.component_placement"


def load_recipe(name: str, overrides: Iterable[str] = (), config_dir: str | Path | None = None) -> DictConfig:
    """Compose a recipe and its presets, with overrides in Hydra's grammar.

    A plain ``key=value`` also sets a key that the YAML does not mention; whether such a key exists is decided when
    the recipe is parsed. An override of ``cluster.component_placement`` replaces what the recipe says about the
    components that it names.

    Args:
        name: Name of a recipe, with or without ``.yaml``, or the path of one.
        overrides: For example ``["runner.max_steps=10", "env@env.train=gym_pendulum"]``.
        config_dir: Folder searched before the others.

    Returns:
        The composed recipe, interpolations not yet resolved.

    Raises:
        ConfigError: No such recipe or folder, an override that cannot be read, or YAML that cannot be composed.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    folder, stem = _locate(name, config_dir)
    folders = [folder, *(other for other in recipe_dirs(config_dir) if other != folder)]
    composed_overrides, placements = _prepare(list(overrides), folders)
    # A recipe in a folder of its own may use the presets of the others.
    others = json.dumps([f"file://{other}" for other in folders[1:]], ensure_ascii=False)
    try:
        with initialize_config_dir(config_dir=str(folder), version_base="1.3", job_name="rlinf"):
            cfg: DictConfig = compose(stem, overrides=[*composed_overrides, f"hydra.searchpath={others}"])
    # A ValueError is Hydra's answer to a defaults list that is none, and Python's to a file that is not UTF-8.
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        # Where Hydra looked, one line for each folder, would hide what it looked for.
        reason = " ".join(str(error).partition("Config search path:")[0].split()).rstrip(".")
        remedy = "Check its defaults list and the overrides."
        if "Could not override" in reason:
            remedy = (
                "A preset is chosen for its place: model@actor.model=NAME, env@env.train=NAME or env@env.eval=NAME; a "
                "key is written with its whole path, actor.model.model_type=NAME."
            )
        raise ConfigError(f"recipe {stem} ({folder}) cannot be composed: {reason}. {remedy}") from error
    for key, value in placements:
        _override_placement(cfg, key, value)
    return cfg


def list_recipes(config_dir: str | Path | None = None) -> dict[str, Path]:
    """Return all recipes that can be found, by name; of two with one name, the one found first.

    Raises:
        ConfigError: ``config_dir`` is not a folder.
    """
    recipes: dict[str, Path] = {}
    for folder in recipe_dirs(config_dir):
        for path in sorted(folder.glob("*.yaml")):
            recipes.setdefault(path.stem, path)
    return dict(sorted(recipes.items()))


def recipe_dirs(config_dir: str | Path | None = None) -> list[Path]:
    """Return the folders in which recipes are looked for, in this order.

    ``config_dir``; ``examples/*/config`` under the working directory, then of the source checkout; the folders of the
    installed package.

    Raises:
        ConfigError: ``config_dir`` is not a folder.
    """
    folders: list[Path] = []
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError(f"--config-dir: received '{config_dir}', which is not a folder; give one with recipes.")
        folders.append(Path(config_dir))
    package = Path(rlinf.__file__).parent
    for root in (Path.cwd(), package.parent):
        folders += sorted(root.glob("examples/*/config"))
    folders += sorted(path for path in package.glob("recipes/*") if path.is_dir())
    return list(dict.fromkeys(folder.resolve() for folder in folders))


def _locate(name: str, config_dir: str | Path | None) -> tuple[Path, str]:
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} and path.is_file():
        return path.resolve().parent, path.stem
    recipes = list_recipes(config_dir)
    stem = name.removesuffix(".yaml")
    if stem in recipes:
        return recipes[stem].resolve().parent, stem
    close = difflib.get_close_matches(stem, list(recipes), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
    raise ConfigError(
        f"Unknown recipe '{name}'.{hint} Known recipes: {', '.join(recipes) or 'none'}. "
        f"Looked in: {', '.join(map(str, recipe_dirs(config_dir))) or 'no folder'}; add one with --config-dir."
    )


def _prepare(overrides: Sequence[str], folders: Sequence[Path]) -> tuple[list[str], list[tuple[str, Any]]]:
    """Return the overrides as Hydra shall see them, and those of the placement, which are applied afterwards."""
    composed: list[str] = []
    placements: list[tuple[str, Any]] = []
    for text in overrides:
        override = parse_override(text)
        key = override.key_or_group
        if override.is_sweep_override():
            raise ConfigError(
                f"override '{hide_in_argument(text)}': Hydra reads a comma, or a function, as a sweep over several "
                f"values, which `rlinf train -m` runs; {_sweep_remedy(key, hide_in_argument(text).partition('=')[2])}"
            )
        if (key == _PLACEMENT or key.startswith(f"{_PLACEMENT}.")) and not override.is_delete():
            placements.append((key, override.value()))
            continue
        is_group = override.package is not None or any((folder / key).is_dir() for folder in folders)
        plain = not (override.is_add() or override.is_delete() or override.is_force_add())
        composed.append(f"++{text}" if plain and not is_group else text)
    return composed, placements


def parse_override(text: str) -> Override:
    """Return an override as Hydra reads it.

    Raises:
        ConfigError: It cannot be read.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        shown = hide_in_argument(text)
        # Hydra's words quote parts of it.
        reason = " ".join(str(error).split()) if shown == text else "part of it is hidden"
        raise ConfigError(
            f"override '{shown}' cannot be read: {reason}. {_quote_remedy(*text.partition('=')[::2])}"
        ) from error


def _sweep_remedy(key: str, value: str) -> str:
    if ":" in value:
        return f"write a mapping in braces: '{key}={{{value}}}'."
    return (
        f"write '{key}=[{value}]' for a list, or '{key}=\"{value}\"', with double quotes inside single quotes, for one "
        "string."
    )


def _quote_remedy(key: str, value: str) -> str:
    """Return how an override is written that cannot be read, by how its value begins."""
    for opening, closing, kind, example in (("{", "}", "mapping", "name: 1, other: 2"), ("[", "]", "list", "1, 2")):
        if value.startswith(opening):
            whole = f"{opening}{example}{closing}"
            return (
                f"A {kind} is one argument, in single quotes for the shell and without quotes around its keys: "
                f"'{key}={whole}'."
            )
    return "Write key=value, without spaces around '='; quote a value that holds special characters: 'key=\"value\"'."


def _override_placement(cfg: DictConfig, key: str, value: Any) -> None:
    """Let ``value`` replace what the recipe says about the components it names."""
    from omegaconf import OmegaConf, open_dict

    placement = OmegaConf.select(cfg, _PLACEMENT)
    rules: dict[str, Any] = OmegaConf.to_container(placement) if OmegaConf.is_dict(placement) else {}  # type: ignore[assignment]
    component, _, rest = key.removeprefix(_PLACEMENT).removeprefix(".").partition(".")
    if not component:
        rules, given = ({}, value) if isinstance(value, dict) else (value, {})
    elif rest:
        previous = next((rule for names, rule in rules.items() if component in _components(names)), None)
        given = {component: {**(previous if isinstance(previous, dict) else {}), rest: value}}
    else:
        given = {component: value}
    for names, rule in given.items():
        taken = set(_components(names))
        rules = {
            ",".join(kept): old
            for old_names, old in rules.items()
            if (kept := [n for n in _components(old_names) if n not in taken])
        }
        rules[names] = rule
    with open_dict(cfg):
        OmegaConf.update(cfg, _PLACEMENT, rules, merge=False, force_add=True)


def _components(names: object) -> list[str]:
    return [name.strip() for name in str(names).split(",") if name.strip()]
