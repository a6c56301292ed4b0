"""The published recipes, where a folder of them is given; and the checked-in list of what becomes of them."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlinf.cli.migrate_compose import compose_published
from rlinf.cli.migrate_recipe import migrate_recipe
from rlinf.config import list_recipes, load_recipe, validate_cfg
from tests.unit.cli.published_outcomes import FOLDER_VARIABLE, find_outcomes, read_outcomes

PUBLISHED_NAME = re.compile(
    "(libero_(spatial|object|goal|10)|calvin_(d|abc|abcd)_d|maniskill|metaworld_(45|50))"
    "_(ppo|grpo)_(openpi|openpi_pi05|openvla|openvlaoft|gr00t)"
)
"""Names of recipes that are here as they were published."""
START_STATES = {"libero": 500, "calvin": 1000}
"""How many start states evaluations of a suite play once; published ones do not say how many they mean to play."""
FOR_EIGHT_GPUS = {
    "libero": {"env.eval.total_num_envs": (500, 504)},
    "calvin": {"env.eval.total_num_envs": (50, 40), "env.eval.max_steps_per_rollout_epoch": (9600, 12000)},
    "metaworld_50_ppo": {"env.eval.total_num_envs": (500, 504)},
    "metaworld_45_ppo": {"env.eval.total_num_envs": (100, 104)},
}
"""Evaluations whose environments eight env workers cannot share out evenly as published: published and our value."""
SAME_EFFECT = (
    *("video", "logger", "model_path", "lora_path", "forward_prefetch"),
    *("fsdp_config.strategy", "offload_pin", "reshard_after", "num_env_processes"),
    # Written or not: there is one plate.
    "use_multiple_plates",
)


def test_the_list_says_how_many_recipes_run_and_why_others_do_not() -> None:
    listed = read_outcomes()
    counts = Counter(entry["outcome"] for entry in listed.values())
    assert sum(counts.values()) == 225
    assert counts["problems"] == 0
    assert counts["complete"] + counts["reduced"] + counts["adapter"] + counts["fill in"] >= 184
    assert all(entry["reasons"] for entry in listed.values() if entry["outcome"] != "complete")


def test_recipes_of_vision_language_action_policies_in_simulators_are_told_one_by_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each is valid here, or says what it lacks; those whose simulator is a guest are adapters, unproven."""
    listed = {name: entry for name, entry in read_outcomes().items() if "policy" in entry}
    counts = Counter(entry["outcome"] for entry in listed.values())
    with capsys.disabled():
        sys.stdout.write(f"\n{len(listed)} published recipes of such policies in simulators: {dict(counts)}\n")
    assert len(listed) == 101
    assert counts["problems"] == 0
    assert counts["complete"] + counts["reduced"] + counts["fill in"] + counts["adapter"] >= 88
    without_reason = [name for name, entry in listed.items() if entry["outcome"] != "complete" and not entry["reasons"]]
    assert not without_reason
    native = {"libero", "maniskill", "metaworld", "calvin"}
    assert {entry["simulator"] for entry in listed.values() if entry["outcome"] == "complete"} <= native


@pytest.mark.skipif(
    FOLDER_VARIABLE not in os.environ,
    reason=f"{FOLDER_VARIABLE} names no folder; set it to `examples` of the published repository",
)
def test_published_recipes_migrate_as_listed() -> None:
    found, listed = find_outcomes(Path(os.environ[FOLDER_VARIABLE])), read_outcomes()
    # Recipes that were published after the list was written have no entry.
    different = {name: (entry, found.get(name)) for name, entry in listed.items() if found.get(name) != entry}
    assert not different


def leaves(section: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values of a configuration by their paths, but for what does not change what is learned."""
    found: dict[str, Any] = {}
    for name, value in section.items():
        here = f"{path}{name}"
        if isinstance(value, dict) and value:
            found |= leaves(value, f"{here}.")
        elif not any(part in here for part in SAME_EFFECT):
            found[here] = value
    return found


@pytest.mark.skipif(
    FOLDER_VARIABLE not in os.environ,
    reason=f"{FOLDER_VARIABLE} names no folder; set it to `examples` of the published repository",
)
@pytest.mark.parametrize("name", [name for name in list_recipes() if PUBLISHED_NAME.fullmatch(name)])
def test_recipes_of_published_names_are_the_published_ones(name: str) -> None:
    file = Path(os.environ[FOLDER_VARIABLE]) / "embodiment" / "config" / f"{name}.yaml"
    published = migrate_recipe(compose_published(file)).recipe
    if published["env"]["train"].get("group_size") == "???":
        published["env"]["train"]["group_size"] = published["algorithm"]["group_size"]
    expected = leaves(asdict(validate_cfg(OmegaConf.create(published))))
    found = leaves(asdict(validate_cfg(load_recipe(name))))
    assert found.pop("env.eval.num_start_states") == START_STATES.get(name.partition("_")[0])
    expected.pop("env.eval.num_start_states")
    for start, keys in FOR_EIGHT_GPUS.items():
        for key in keys if name.startswith(start) else ():
            assert (expected.pop(key), found.pop(key)) == keys[key]
    assert found == expected
