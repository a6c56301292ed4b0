"""Whatever is wrong with a key of a recipe, the answer is a typed error that names its path and says what to do."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from typing import Any

import pytest
from omegaconf import OmegaConf
from recipe_mutations import Mutation, mutations, places

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError, PlacementError

RECIPES = {
    "gym_cartpole_ppo_mlp": "on-policy",
    "gym_pendulum_async_sac_mlp": "off-policy and asynchronous",
    "gym_pendulum_iql_mlp": "offline",
    "metaworld_reach_dagger_mlp": "imitation",
    "realworld_franka_dummy_rlpd_mlp": "robots, wrappers and node groups",
    "maniskill_pushcube_ppo_cnn": "a simulator's own keywords",
    "pixel_reach_ppo_reward_model": "rewards by name",
    "qwen2_5_7b_async_grpo_math": "reasoning on several nodes with GPUs",
    "qwen2_5_1_5b_ppo_math": "reasoning with values",
    "tiny_math_sft": "fine-tuning",
}
# Seconds of a processor each, and hardly a key that the others do not have.
REPEATED = {"gym_cartpole_ppo_mlp", "qwen2_5_1_5b_ppo_math"}
ALL_RECIPES = [pytest.param(name, marks=[pytest.mark.slow] if name in REPEATED else []) for name in RECIPES]

# Words with which a message tells what to do.
REMEDY = re.compile(
    r"\b([Aa]dd|[Cc]hoose|Did you mean|Draw|[Gg]ive|Indent|Known (keys|sections)|[Ll]ower|name the|Pass|Put|[Rr]emove"
    r"|Set|Use|[Ww]rite)\b"
)


@pytest.fixture(autouse=True)
def _no_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for plug-ins among the installed packages takes longer than everything else in a validation."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: ())


@pytest.fixture(params=ALL_RECIPES)
def recipe(request: pytest.FixtureRequest) -> dict[str, Any]:
    container = OmegaConf.to_container(load_recipe(request.param), resolve=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def mistakes_of(mutation: Mutation) -> list[str]:
    """Return what is wrong about the message for a recipe with one mistake."""
    try:
        validate_cfg(mutation.recipe)
    except (ConfigError, PlacementError) as error:
        first, *lines = str(error).splitlines()
    else:
        return [f"{mutation}: nothing is noticed"]
    found = [line for line in lines if line.startswith(tuple(f"  - {path}: " for path in mutation.paths))]
    faults = [f"{mutation}: does not tell what to do: {line}" for line in lines if not REMEDY.search(line)]
    if not re.fullmatch(r"The recipe has \d+ problems?:", first):
        faults.append(f"{mutation}: is not one of ours: {first}")
    if not found:
        faults.append(f"{mutation}: its path is not named:\n" + "\n".join(lines))
    elif not any(words in line for line in found for words in mutation.says):
        faults.append(f"{mutation}: says none of {mutation.says}:\n" + "\n".join(found))
    return faults


def test_every_mistake_is_named_with_its_remedy(recipe: dict[str, Any]) -> None:
    wrong = list(mutations(recipe, validate_cfg(recipe)))
    assert len(wrong) > 400
    faults = [fault for mutation in wrong for fault in mistakes_of(mutation)]
    assert not faults, f"{len(faults)} of {len(wrong)}:\n" + "\n".join(faults[:20])


def test_every_written_key_is_mutated(recipe: dict[str, Any]) -> None:
    typed = validate_cfg(recipe)
    written = {place.path for place in places(recipe, typed)}
    mutated = {path for mutation in mutations(recipe, typed) for path in mutation.paths}

    def leaves(value: Any, path: str) -> Iterator[str]:
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            at = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}".removeprefix(".")
            yield at
            yield from leaves(child, at)

    # Anything may stand under a key with keywords for somebody else, environments' init_params say.
    free = tuple(place.path for place in places(recipe, typed) if str(place.annotation) == "dict[str, typing.Any]")
    known = {path for path in leaves(recipe, "") if not path.startswith(tuple(f"{prefix}." for prefix in free))}
    assert known <= written
    assert {path for path in known if not re.search(r"\.init_params\b", path)} <= mutated


def test_a_mistake_that_nobody_notices_would_be_found() -> None:
    """The check itself can fail: a recipe without a mistake is reported."""
    recipe = OmegaConf.to_container(load_recipe("gym_cartpole_ppo_mlp"), resolve=True)
    mutation = next(mutations(recipe, validate_cfg(recipe)))
    faults = mistakes_of(type(mutation)(mutation.kind, mutation.paths, mutation.says, recipe))
    assert faults == [f"{mutation}: nothing is noticed"]
