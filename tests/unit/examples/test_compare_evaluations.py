"""Which evaluations may be compared: each key that decides an episode stands in the way, but for those named."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from test_summarize import recipe, summary

from evaluations import summarize
from evaluations.comparison import MAY_DIFFER, SECTIONS, differences

SUITES = ("libero_object_eval", "calvin_d_eval", "metaworld_mt10_eval", "langpick_eval", "put_on_plate_eval")
KINDS = {
    "openvla_oft": recipe(),
    "openpi": recipe(
        "libero_object_eval",
        "model@actor.model=openpi",
        "actor.model.variant=pi05",
        "actor.model.num_action_chunks=8",
    ),
}


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """Return an evaluation of code that is that of its commit."""
    return of_clean_code(summary(KINDS["openvla_oft"]))


def of_clean_code(made: dict[str, Any]) -> dict[str, Any]:
    return changed(made, "versions", "changed", False)


def changed(made: dict[str, Any], section: str, key: str, value: object = "something else") -> dict[str, Any]:
    other = copy.deepcopy(made)
    other[section][key] = value
    return other


@pytest.mark.parametrize("suite", SUITES)
def test_every_key_of_the_environment_bites_that_is_not_named(suite: str) -> None:
    made = of_clean_code(summary(recipe(suite)))
    cfg = recipe(suite).env.eval
    assert cfg is not None
    assert made["env"].keys() == {field.name for field in dataclasses.fields(cfg)}
    for key in made["env"]:
        found = differences(made, changed(made, "env", key))
        assert bool(found) == (f"env.{key}" not in MAY_DIFFER), key
        assert all(line.startswith(f"env.{key}") for line in found)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_the_model_bites_that_is_not_named(kind: str) -> None:
    made = of_clean_code(summary(KINDS[kind]))
    for key in made["model"].keys() - {"model_type"}:
        assert bool(differences(made, changed(made, "model", key))) == (f"model.{key}" not in MAY_DIFFER), key


@pytest.mark.parametrize("section", ["execution", "versions", "starts"])
def test_every_version_and_every_way_of_acting_bites(made: dict[str, Any], section: str) -> None:
    for key in made[section]:
        is_named = f"{section}.{key}" in MAY_DIFFER
        assert bool(differences(made, changed(made, section, key, "another"))) != is_named, key
    assert differences(made, changed(made, section, "new", "key"))


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("env.eval.disturbance=0.1", "env.disturbance: 0.0 and 0.1"),
        ("env.eval.ignore_terminations=true", "env.ignore_terminations: False and True"),
        ("env.eval.render_quality=light", "env.render_quality: 'full' and 'light'"),
        ("+env.eval.wrappers=[{name: action_delay, num_steps: 2}]", "env.wrappers: "),
        ("actor.model.num_action_chunks=4", "execution.num_action_chunks: 8 and 4"),
        ("+rollout.model.precision=bf16", "execution.precision: 'fp32' and 'bf16'"),
    ],
)
def test_recipes_that_decide_otherwise_are_not_compared(made: dict[str, Any], override: str, line: str) -> None:
    other = of_clean_code(summary(recipe("libero_object_eval", override)))
    assert any(found.startswith(line) for found in differences(made, other)), differences(made, other)


def test_other_weights_cut_otherwise_are_compared(made: dict[str, Any]) -> None:
    other = recipe(
        "libero_object_eval",
        *("actor.model.model_path=elsewhere", "actor.seed=3", "env.eval.total_num_envs=10"),
        *("env.eval.rollout_epoch=50", "env.eval.video_cfg.save_video=true"),
    )
    assert differences(made, of_clean_code(summary(other))) == []


def test_policies_of_two_kinds_are_compared_by_how_they_act(made: dict[str, Any]) -> None:
    other = of_clean_code(summary(KINDS["openpi"]))
    assert differences(made, other) == []
    assert differences(made, changed(other, "execution", "precision", "bf16"))


def test_a_key_that_begins_like_one_that_may_differ_bites(made: dict[str, Any]) -> None:
    assert differences(made, changed(made, "model", "model_path_of_the_expert")) != []


def test_a_key_may_be_allowed_to_differ(made: dict[str, Any]) -> None:
    other = changed(made, "versions", "commit", "0123")
    assert differences(made, other)
    assert differences(made, other, ["versions.commit"]) == []
    assert differences(made, changed(other, "versions", "mujoco"), ["versions.commit"])


def test_code_that_differs_from_its_commit_is_not_compared(made: dict[str, Any]) -> None:
    one = changed(made, "versions", "changed", True)
    assert differences(one, one) == ["versions.changed: the code of one differs from that of its commit"]
    assert differences(one, one, ["versions.changed"]) == []


@pytest.mark.parametrize("section", SECTIONS)
def test_files_of_earlier_versions_are_not_compared(made: dict[str, Any], section: str) -> None:
    older = {name: value for name, value in made.items() if name != section}
    assert differences(made, older)[0].startswith(f"{section}: not in both files")


def test_the_command_prints_both_or_why_not(
    made: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def save(name: str, content: dict[str, Any]) -> str:
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        return str(tmp_path / name)

    same = save("same", made)
    other = save("other", changed(made, "versions", "mujoco", "3.9.0"))
    assert summarize.main(["--compare", same, same]) == 0
    assert "all: 0.500 [" in capsys.readouterr().out
    assert summarize.main(["--compare", same, other]) == 1
    assert "versions.mujoco: '3.3.0' and '3.9.0'" in capsys.readouterr().err
    assert summarize.main(["--compare", same, other, "--allow", "versions.mujoco"]) == 0
