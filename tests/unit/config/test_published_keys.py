"""The table of published keys: its entries name what exists here, and recognise published recipes alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlinf.config import list_recipes, load_recipe, published_keys
from rlinf.config.published_keys import KeyRule, explain_published, find_rule, is_published, leaves, value_at
from rlinf.config.sections import known_paths

TABLE = published_keys.published_keys()
KNOWN = {re.sub(r"\[\]|<name>\.", "", path) for path in known_paths()}


def test_every_entry_is_written_once_and_has_a_reason_or_a_target() -> None:
    entries = [repr((rule.key, rule.when, rule.where)) for rule in TABLE]
    assert len(set(entries)) == len(entries)
    for rule in TABLE:
        assert rule.why or rule.target or rule.values, rule.key
        assert not rule.why.endswith("."), f"{rule.key}: the sentence goes on"


def exists(path: str) -> bool:
    """Return whether some recipe may have a key, whichever environment or reward it is about."""
    path = path.format("train", "train").replace("env.eval", "env.train")
    path = re.sub(r"^(reward\.rewards|agent\.tools)\.\w+\.", r"\1.", path)
    parent, _, _ = path.rpartition(".")
    is_named_by_user = parent.endswith(".replies") and parent in KNOWN
    return path in KNOWN or is_named_by_user or path.partition("init_params.")[0].rstrip(".") in KNOWN


def test_what_is_written_instead_exists() -> None:
    for rule in TABLE:
        groups = ("critic_",) if "optim" in rule.key else ("train",)
        for path in [*([rule.target] if rule.action == "move" else []), *rule.sets]:
            assert exists(path.format(*groups)), f"{rule.key}: {path}"


def test_reasons_name_keys_that_exist() -> None:
    for rule in TABLE:
        for path in re.findall(r"\b(?:actor|algorithm|cluster|data|env|rollout|runner)\.[a-z_.]+[a-z]", rule.why):
            published = any(other.match(path) is not None for other in TABLE)
            assert exists(path) or published or path.endswith(".sh"), f"{rule.key}: {path}"


@pytest.mark.parametrize(
    ("key", "path", "groups"),
    [
        ("critic.use_critic_model", "critic.use_critic_model", ()),
        ("env.*.is_eval", "env.train.is_eval", ("train",)),
        ("env.*.is_eval", "env.train.more.is_eval", None),
        ("rollout.model.**", "rollout.model.one.two", ("one.two",)),
        ("actor.*optim.lr", "actor.optim.lr", ("",)),
        ("actor.*optim.lr", "actor.critic_optim.lr", ("critic_",)),
        ("runner.seq_length", "runner_seq_length", None),
    ],
)
def test_stars_stand_for_names(key: str, path: str, groups: tuple[str, ...] | None) -> None:
    assert KeyRule(key=key, action="drop").match(path) == groups


@pytest.mark.parametrize(
    ("value", "recipe", "applies"),
    [
        (0, {"runner": {"task_type": "sft"}}, True),
        (False, {"runner": {"task_type": "sft"}}, False),
        (1, {"runner": {"task_type": "sft"}}, False),
        (0, {"runner": {"task_type": "embodied"}}, False),
        (0, {}, False),
    ],
)
def test_conditions_of_a_rule_all_hold(value: object, recipe: dict[str, Any], applies: bool) -> None:
    rule = KeyRule(key="a", action="drop", when=(0,), where={"runner.task_type": ("sft",)})
    assert rule.applies(value, recipe) is applies


def test_the_first_rule_that_applies_is_taken() -> None:
    found = find_rule("runner.weight_sync_interval", 1, {})
    assert found is not None
    assert found[0].action == "drop"
    found = find_rule("runner.weight_sync_interval", 30, {})
    assert found is not None
    assert found[0].action == "lost"
    assert find_rule("runner.max_epochs", 5, {}) is None


def test_explanations_are_instructions() -> None:
    assert explain_published("runner.output_dir") == "write runner.logger.log_path."
    assert explain_published("env.train.is_eval") == "env.train always explores: remove it."
    assert "it has no counterpart: engines that are served" in str(explain_published("sglang_router"))
    assert "algorithm.dagger.init_beta is algorithm.beta" in str(explain_published("algorithm.dagger"))
    assert explain_published("actor.model.precision") is None, "its values have other names, the key is ours"
    assert explain_published("actor.nonsense") is None


def test_the_recipe_decides_among_explanations() -> None:
    text = {"runner": {"task_type": "reasoning"}, "rollout": {"model": {"model_path": "/m"}}}
    policy = {"runner": {"task_type": "embodied"}, "rollout": {"model": {"model_path": "/m"}}}
    assert explain_published("rollout.model.model_path", text) == "write actor.model.model_path."
    assert "takes the actor's weights" in str(explain_published("rollout.model.model_path", policy))


def test_a_published_recipe_is_recognised_and_ours_are_not() -> None:
    keys = ("critic.use_critic_model", "reward.use_reward_model", "rollout.generation_backend", "runner.output_dir")
    recipe: dict[str, dict[str, object]] = {}
    for path in keys:
        section, key = path.split(".")
        assert not is_published(recipe)
        recipe.setdefault(section, {})[key] = False
    assert is_published(recipe)
    for name in list_recipes():
        plain = OmegaConf.to_container(load_recipe(name), resolve=False)
        assert isinstance(plain, dict)
        assert not is_published({str(key): value for key, value in plain.items()}), name


def test_values_are_found_by_their_paths() -> None:
    recipe = {"a": {"b": {"c": 0}, "d": None, "e": {}}}
    assert value_at(recipe, "a.b.c") == 0
    assert value_at(recipe, "a.d", 7) == 7
    assert value_at(recipe, "a.b.c.x") is None
    assert list(leaves(recipe)) == [("a.b.c", 0), ("a.d", None), ("a.e", {})]
