"""Tasks and benchmarks of MetaWorld."""

import sys

import pytest
from builtin_configs import metaworld_config

from rlinf.envs import make_vector_env
from rlinf.envs.simulators.metaworld.metaworld_tasks import (
    BENCHMARKS,
    PAPER_SENTENCES,
    SPLITS,
    TASK_DESCRIPTIONS,
    tasks_of,
)
from rlinf.errors import ConfigError, MissingPackageError


def test_an_unknown_task_suggests_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"task_name.*Did you mean 'reach-v3'"):
        make_vector_env(metaworld_config(task_name="reach-v2"), num_envs=1)


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "metaworld", None)
    monkeypatch.delitem(sys.modules, "metaworld.env_dict", raising=False)
    with pytest.raises(MissingPackageError, match=r"bash requirements/install.sh embodied --env metaworld"):
        make_vector_env(metaworld_config(), num_envs=1)


def test_every_task_has_a_description() -> None:
    env_dict = pytest.importorskip("metaworld.env_dict")
    assert set(TASK_DESCRIPTIONS) == set(PAPER_SENTENCES) == set(env_dict.ALL_V3_ENVIRONMENTS)
    assert len(set(TASK_DESCRIPTIONS.values())) == 50
    said_alike = {"push-v3", "push-back-v3"}
    assert {PAPER_SENTENCES[name] for name in said_alike} == {"Push the puck to a goal"}
    assert len(set(PAPER_SENTENCES.values())) == 49


def test_each_task_of_a_benchmark_gets_equally_many_groups() -> None:
    cfg = metaworld_config(task_name="mt10", total_num_envs=30, group_size=2)
    with pytest.raises(ConfigError, match=r"total_num_envs=30 .* multiple of 20"):
        make_vector_env(cfg, num_envs=30)
    tasks_of(metaworld_config(task_name="mt10", total_num_envs=30, group_size=2, task_per_episode=True))


def test_benchmarks_are_those_of_metaworld() -> None:
    env_dict = pytest.importorskip("metaworld.env_dict")
    assert BENCHMARKS["mt10"] == tuple(env_dict.MT10_V3)
    assert BENCHMARKS["mt50"] == tuple(env_dict.MT50_V3)


@pytest.mark.parametrize("name", ["ml10", "ml45"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_splits_are_those_of_metaworld(name: str, split: str) -> None:
    env_dict = pytest.importorskip("metaworld.env_dict")
    published = getattr(env_dict, f"{name.upper()}_V3")[split]
    assert sorted(SPLITS[name][split]) == sorted(published)
    assert len(SPLITS[name][split]) == {"ml10train": 10, "ml45train": 45}.get(name + split, 5)


def test_a_split_shares_its_tasks_out() -> None:
    cfg = metaworld_config(task_name="ml45", task_split="test", total_num_envs=10)
    assert tasks_of(cfg) == SPLITS["ml45"]["test"]
    assert not {*tasks_of(cfg)} & {*tasks_of(metaworld_config(task_name="ml45", total_num_envs=90))}
    with pytest.raises(ConfigError, match=r"total_num_envs=12 .* multiple of 10"):
        tasks_of(metaworld_config(task_name="ml45", task_split="test", total_num_envs=12))


def test_benchmarks_without_splits_refuse_one() -> None:
    for name in ("mt10", "reach-v3"):
        with pytest.raises(ConfigError, match=f"task_split: received test; task_name={name} has no splits"):
            tasks_of(metaworld_config(task_name=name, task_split="test", total_num_envs=10))


def test_an_evaluation_plays_no_goal_twice() -> None:
    keys = {"task_name": "ml45", "task_split": "test", "total_num_envs": 10, "num_goals": 50}
    tasks_of(metaworld_config(**keys, num_start_states=250))
    with pytest.raises(ConfigError, match="num_start_states: received 255; there are 250"):
        tasks_of(metaworld_config(**keys, num_start_states=255))
