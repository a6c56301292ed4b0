"""The sections whose keys depend on another key: an environment, a model, and the flat ``algorithm`` section."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args, get_origin

from rlinf.config.foreign_keys import explain_foreign, explain_foreign_value
from rlinf.config.parse import MISSING, Parser, SectionParser, field_types, fields_of, is_required
from rlinf.config.problems import describe_value, is_union, join
from rlinf.config.registries import (
    advantages,
    data_formats,
    envs,
    experts,
    generation_engines,
    hardware_types,
    interveners,
    losses,
    models,
    rewards,
    task_types,
    tools,
    workflows,
    wrappers,
)
from rlinf.config.schema.agent import AgentConfig, ToolConfig
from rlinf.config.schema.algorithm import (
    AlgorithmConfig,
    EmbodiedAlgorithmConfig,
    SftAlgorithmConfig,
    TextAlgorithmConfig,
)
from rlinf.config.schema.base import ConfigSection
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.env import EnvConfig, WrapperConfig
from rlinf.config.schema.expert import ExpertConfig
from rlinf.config.schema.generation import GenerationConfig
from rlinf.config.schema.intervention import IntervenerConfig
from rlinf.config.schema.model import CausalLMConfig, ModelConfig
from rlinf.config.schema.reward import EmbodiedRewardConfig, TextRewardConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.runner import RunnerConfig
from rlinf.config.schema.value import FrameModelConfig, ValueAlgorithmConfig
from rlinf.registry import ConfigTable, closest, did_you_mean
from rlinf.utils.plugins import MODULE_VARIABLE

ALGORITHM_PARTS: dict[str, tuple[str, ConfigTable]] = {
    "advantage": ("adv_type", advantages.configs),
    "loss": ("loss_type", losses.configs),
}
"""Parts of ``AlgorithmConfig``: the key that chooses, and what it chooses from."""

_HARDWARE_ENTRIES = "cluster.node_groups[].hardware.configs[]"

_KINDS: dict[type[ConfigSection], tuple[str, ConfigTable]] = {
    AgentConfig: ("workflow", workflows.configs),
    DataConfig: ("format", data_formats.configs),
    EnvConfig: ("env_type", envs.configs),
    GenerationConfig: ("rollout_backend", generation_engines.configs),
    ExpertConfig: ("expert_type", experts.configs),
    IntervenerConfig: ("intervener_type", interveners.configs),
    ModelConfig: ("model_type", models.configs),
    CausalLMConfig: ("model_type", models.configs),
    FrameModelConfig: ("model_type", models.configs),
    EmbodiedRewardConfig: ("reward_type", rewards.configs),
    TextRewardConfig: ("reward_type", rewards.configs),
    ToolConfig: ("tool_type", tools.configs),
    WrapperConfig: ("name", wrappers.configs),
}


def section_parsers() -> dict[type, SectionParser]:
    """Return the parsers of all sections that are not simply their dataclass."""
    parsers: dict[type, SectionParser] = {cls: _discriminated(cls, *kind) for cls, kind in _KINDS.items()}
    for cls in (EmbodiedAlgorithmConfig, SftAlgorithmConfig, TextAlgorithmConfig, ValueAlgorithmConfig):
        parsers[cls] = functools.partial(_parse_algorithm, cls)
    return parsers


def parse_recipe(parser: Parser, data: object) -> RLinfConfig | None:
    """Parse a whole recipe into the class of its ``runner.task_type``; None when it has problems."""
    keys = parser.mapping(data, "")
    if keys is None:
        return None
    parser.recipe = keys
    given = keys.get("runner")
    runner = {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else {}
    default = next(field.default for field in fields_of(RunnerConfig) if field.name == "task_type")
    close = None if "task_type" in runner else closest("task_type", runner)
    if close is not None and not _paths_of(close, near="runner", recipe=None):
        # With the default instead of what was meant, every other section would be of another kind.
        parser.problems.add(f"runner.{close}", _explain_by_name(close, ["task_type"], "runner", keys))
        return None
    name = choose(
        parser, {"task_type": default, **runner}, path="runner", discriminator="task_type", registry=task_types.configs
    )
    return None if name is None else parser.section(task_types.configs.get(name), keys)


def explain_unknown(cls: type[ConfigSection], path: str, key: str, recipe: Mapping[str, Any] | None = None) -> str:
    """Return the text for an unknown key: whose key it is, where it goes, or which one was meant."""
    kinds = {**_KINDS, RLinfConfig: ("runner.task_type", task_types.configs)}
    for base, (discriminator, registry) in kinds.items():
        owners = _owners(registry, key, base) if issubclass(cls, base) else []
        chosen = [name for name in registry.names() if registry.get(name) is cls]
        if owners:
            return _belongs_elsewhere(discriminator, chosen[0] if chosen else "?", owners)
    names = list(field_types(cls))
    foreign = explain_foreign(join(path, key), recipe)
    # Of patterns that fit everything in a section, a slip of the pen is none.
    if foreign and closest(key, names, cutoff=0.85) is None:
        return f"unknown key: {foreign}"
    return _explain_by_name(key, sorted(names) if path else names, path, recipe)


def _explain_by_name(key: str, known: list[str], path: str, recipe: Mapping[str, Any] | None) -> str:
    """Return the text for a key that is unknown at this place.

    Args:
        key: The key.
        known: Keys of the section.
        path: Dotted path of the section.
        recipe: The whole recipe, if one is parsed: what is suggested is a key that it may have.
    """
    # Something of the very same name is the better guess: a section that is indented wrongly has many keys.
    guesses = _paths_of(key, near=path, recipe=recipe)[:1]
    close = closest(key, known)
    if close is not None:
        guesses.append(join(path, close))
    if guesses:
        return f"unknown key. Did you mean {' or '.join(repr(guess) for guess in dict.fromkeys(guesses))}?"
    if not path:
        return f"unknown section. Known sections: {', '.join(known)}."
    return f"unknown key. Known keys here: {', '.join(known) or 'none'}."


def _discriminated(base: type[ConfigSection], discriminator: str, registry: ConfigTable) -> SectionParser:
    def parse(parser: Parser, data: object, path: str) -> Any:
        keys = parser.mapping(data, path)
        if keys is None:
            return None
        name = choose(parser, keys, path=path, discriminator=discriminator, registry=registry, base=base)
        if discriminator not in keys:
            _note_strange_keys(parser, keys, path, discriminator, registry, base)
        return None if name is None else parser.section(registry.get(name), {**keys, discriminator: name}, path)

    return parse


def choose(
    parser: Parser,
    keys: Mapping[str, Any],
    *,
    path: str,
    discriminator: str,
    registry: ConfigTable,
    base: type[ConfigSection] = ConfigSection,
) -> str | None:
    """Return the registered name that a section's discriminator gives, in lower case; None if it has a problem.

    Args:
        parser: Takes the problem.
        keys: Keys of the section.
        path: Dotted path of the section.
        discriminator: The key that chooses.
        registry: What it chooses from.
        base: What the chosen dataclass must derive from: some registries serve several kinds of recipe.
    """
    at = join(path, discriminator)
    names = _fitting(registry, base)
    options = f"Choose one that is registered: {', '.join(names)}."
    value = keys.get(discriminator, MISSING)
    if value == MISSING:
        parser.problems.add(at, f"missing; required: the name of a registered {registry.kind}. {options}")
    elif not isinstance(value, str):
        parser.problems.add(at, f"received {describe_value(value)}; allowed: a string. {options}")
    elif value not in registry:
        known_as = explain_foreign_value(discriminator, value)
        hint = did_you_mean(value.lower(), names) if known_as is None else f" {known_as}"
        if not hint and not os.environ.get(MODULE_VARIABLE):
            options += f" If a plug-in registers it, name its module in {MODULE_VARIABLE}."
        parser.problems.add(at, f"unknown {registry.kind} '{value}'.{hint} {options}")
    elif value.lower() not in names:
        parser.problems.add(
            at,
            f"received '{value}', a {registry.kind} of another kind of recipe. Choose one of: {', '.join(names)}.",
        )
    else:
        return value.lower()
    return None


def _note_strange_keys(
    parser: Parser,
    keys: Mapping[str, Any],
    path: str,
    discriminator: str,
    registry: ConfigTable,
    base: type[ConfigSection],
) -> None:
    """Note those keys of a section that no choice of its discriminator has; one may be the discriminator, misspelt."""
    known = {name for choice in _fitting(registry, base) for name in field_types(registry.get(choice))}
    for key in keys:
        if key not in known:
            parser.problems.add(join(path, key), _explain_by_name(key, sorted(known), path, parser.recipe))


def _parse_algorithm(cls: type[AlgorithmConfig], parser: Parser, data: object, path: str) -> AlgorithmConfig | None:
    keys = parser.mapping(data, path)
    if keys is None:
        return None
    keys = {**_default_choices(cls), **keys}
    names = {
        part: choose(parser, keys, path=path, discriminator=discriminator, registry=registry)
        for part, (discriminator, registry) in ALGORITHM_PARTS.items()
    }
    classes = {part: ALGORITHM_PARTS[part][1].get(name) for part, name in names.items() if name is not None}
    _note_foreign_algorithm_keys(parser, keys, names, known=set(field_types(cls)) - set(ALGORITHM_PARTS), path=path)
    common = parser.fields(cls, keys, path, skip={*ALGORITHM_PARTS, "adv_type", "loss_type"})
    fields = {part: parser.fields(owner, keys, path) for part, owner in classes.items()}
    if common is None or len(classes) < len(ALGORITHM_PARTS) or any(values is None for values in fields.values()):
        return None
    parts = {part: classes[part](**cast("dict[str, Any]", values)) for part, values in fields.items()}
    return cls(adv_type=str(names["advantage"]), loss_type=str(names["loss"]), **common, **parts)


def _default_choices(cls: type[AlgorithmConfig]) -> dict[str, object]:
    """Return the discriminators that a recipe of this kind may leave out."""
    discriminators = {discriminator for discriminator, _ in ALGORITHM_PARTS.values()}
    return {
        field.name: field.default for field in fields_of(cls) if field.name in discriminators and not is_required(field)
    }


def _note_foreign_algorithm_keys(
    parser: Parser, keys: Mapping[str, Any], names: Mapping[str, str | None], *, known: set[str], path: str
) -> None:
    """Note keys that no part takes; those of another advantage or loss are distinguished from unknown ones."""
    for part, name in names.items():
        known |= set(field_types(ALGORITHM_PARTS[part][1].get(name))) if name is not None else set()
    for key in keys:
        if key in known:
            continue
        text = _explain_algorithm_key(key, names, known, path, parser.recipe)
        if text:
            parser.problems.add(join(path, key), text)


def _explain_algorithm_key(
    key: str, names: Mapping[str, str | None], known: set[str], path: str, recipe: Mapping[str, Any] | None
) -> str:
    if key in ALGORITHM_PARTS:
        return f"unknown key. Write the keys of {ALGORITHM_PARTS[key][0]} directly under {path}."
    all_owners = {part: _owners(registry, key) for part, (_, registry) in ALGORITHM_PARTS.items()}
    if any(owners and names[part] is None for part, owners in all_owners.items()):
        # With an unknown choice nothing can be said about its keys; the choice itself has been reported.
        return ""
    for part, owners in all_owners.items():
        if owners:
            return _belongs_elsewhere(ALGORITHM_PARTS[part][0], str(names[part]), owners)
    foreign = explain_foreign(join(path, key), recipe)
    if foreign:
        return f"unknown key: {foreign}"
    return _explain_by_name(key, sorted(known), path, recipe)


def _belongs_elsewhere(discriminator: str, chosen: str, owners: list[str]) -> str:
    others = " or ".join(f"{discriminator}={owner}" for owner in owners)
    return f"not used by {discriminator}={chosen} (it belongs to {others}). Remove it, or choose that."


def _owners(registry: ConfigTable, key: str, base: type[ConfigSection] = ConfigSection) -> list[str]:
    """Return the names whose dataclass derives from ``base`` and has the field ``key``."""
    return [name for name in _fitting(registry, base) if key in field_types(registry.get(name))]


def _fitting(registry: ConfigTable, base: type[ConfigSection]) -> list[str]:
    """Return the names whose dataclass derives from ``base``."""
    return [name for name in registry.names() if issubclass(registry.get(name), base)]


def _paths_of(key: str, near: str, recipe: Mapping[str, Any] | None) -> list[str]:
    """Return the paths at which a recipe may have ``key``: those in the same section first, then the shorter.

    A section within an item of that section is farther away than another section.

    Args:
        key: The key.
        near: Dotted path of the section in which it was found.
        recipe: The recipe; None is any. Items of lists and entries of mappings, whose paths cannot be written as they
            are, come last in their section.
    """
    top = near.split(".")[0]
    known = known_paths() if recipe is None else _paths_of_recipe(recipe)
    found = [path for path in known if path.rsplit(".", 1)[-1] == key]

    def order(path: str) -> tuple[object, ...]:
        is_item = bool(set("[<") & set(path))
        is_far = path.split(".")[0] != top or (is_item and "." in re.split(r"[]>]\.?", path)[-1])
        return is_far, is_item, path.count("."), ".eval." in path, len(path), path

    return sorted(found, key=order)


def known_paths() -> tuple[str, ...]:
    """Return every key that some recipe may have, as full dotted paths: ``[]`` is any item, ``<name>`` any key."""
    choices = [registry for _, registry in (*_KINDS.values(), *ALGORITHM_PARTS.values())]
    registries = dict.fromkeys([*choices, task_types.configs, hardware_types.configs])
    return _paths_with(tuple(registry.get(name) for registry in registries for name in registry))


@functools.lru_cache(maxsize=1)
def _paths_with(registered: tuple[type, ...]) -> tuple[str, ...]:
    """Walk the schema anew only where what is registered has changed."""
    del registered
    tops: list[tuple[type[ConfigSection], str]] = [(task_types.configs.get(name), "") for name in task_types.configs]
    tops += [(hardware_types.configs.get(name), _HARDWARE_ENTRIES) for name in hardware_types.configs]
    return tuple(sorted({path for cls, top in tops for path in _walk(cls, top)}))


def _paths_of_recipe(recipe: Mapping[str, Any]) -> list[str]:
    """Return the keys that a recipe may have: those of what it chooses, and of everything where it does not choose."""
    runner = recipe.get("runner")
    task = runner.get("task_type") if isinstance(runner, Mapping) else None
    # Without a task type it is one that steps environments, unless nothing else says so either.
    task = "embodied" if task is None and "env" in recipe else task
    chosen = [str(task)] if task in task_types.configs else task_types.configs.names()
    paths = {path for name in chosen for path in _walk(task_types.configs.get(name), "", recipe)}
    hardware = hardware_types.configs
    return sorted(paths.union(*(_walk(hardware.get(name), _HARDWARE_ENTRIES) for name in hardware)))


def _walk(cls: type[ConfigSection], path: str, data: object = None) -> Iterator[str]:
    for name, annotation in field_types(cls).items():
        at, value = join(path, name), data.get(name) if isinstance(data, Mapping) else None
        if issubclass(cls, AlgorithmConfig) and name in ALGORITHM_PARTS:
            at, value = path, {**_default_choices(cls), **data} if isinstance(data, Mapping) else None
        if at != path:
            yield at
        for section, below in _sections_in(annotation, at):
            for variant in _variants(section, name, value):
                yield from _walk(variant, below, value)


def _sections_in(annotation: Any, path: str) -> Iterator[tuple[type[ConfigSection], str]]:
    """Yield the sections that a value can hold, with their paths: ``[]`` for any item, ``<name>`` for any key."""
    origin, args = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, ConfigSection):
        yield annotation, path
    elif origin is list:
        yield from _sections_in(args[0], f"{path}[]")
    elif origin is dict:
        yield from _sections_in(args[1], f"{path}.<name>")
    elif is_union(annotation):
        for member in args:
            yield from _sections_in(member, path)


def _variants(section: type[ConfigSection], name: str, data: object) -> list[type[ConfigSection]]:
    """Return the classes that a section may be parsed into: the one that ``data`` chooses, if it does."""
    kind = _KINDS.get(section, ALGORITHM_PARTS.get(name))
    if kind is None:
        return [section]
    discriminator, registry = kind
    chosen = data.get(discriminator) if isinstance(data, Mapping) else None
    if isinstance(chosen, str) and chosen in registry:
        return [registry.get(chosen)]
    base = section if section in _KINDS else ConfigSection
    return list({id(cls): cls for cls in (registry.get(entry) for entry in _fitting(registry, base))}.values())


def flatten_algorithm(config: AlgorithmConfig) -> dict[str, Any]:
    """Return the section as a recipe writes it: the keys of both parts directly under ``algorithm``."""
    flat = {f.name: getattr(config, f.name) for f in fields_of(config) if f.name not in ALGORITHM_PARTS}
    for part in ALGORITHM_PARTS:
        section = getattr(config, part)
        flat |= {f.name: getattr(section, f.name) for f in fields_of(section)}
    return flat
