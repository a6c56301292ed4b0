"""Reset-state ids go through the tasks and start states of LIBERO, each once."""

import pytest
from libero_configs import libero_config

from rlinf.config.schema.env import LiberoSuite
from rlinf.envs.readiness import check_env_config
from rlinf.envs.reset_states import ResetStates
from rlinf.envs.simulators.libero.libero_starts import LiberoStarts, check_libero, libero_starts
from rlinf.errors import ConfigError


@pytest.mark.parametrize(("suite", "count"), [("libero_spatial", 500), ("libero_10", 500), ("libero_90", 4500)])
def test_each_task_and_start_state_has_one_id(suite: LiberoSuite, count: int) -> None:
    starts = libero_starts(libero_config(task_suite_name=suite))
    assert len(starts) == count
    named = [starts.start(number) for number in range(count)]
    assert set(named) == {(task, trial) for task in range(count // 50) for trial in range(50)}
    assert starts.start(count) == named[0]


def test_ids_go_through_the_tasks_first() -> None:
    starts = LiberoStarts(tasks=(7, 3), trials=(10, 11, 12))
    assert [starts.start(number) for number in range(6)] == [(7, 10), (3, 10), (7, 11), (3, 11), (7, 12), (3, 12)]


@pytest.mark.parametrize(("num_envs", "num_epochs"), [(20, 25), (10, 50), (100, 5), (25, 20), (500, 1)])
def test_an_ordered_evaluation_plays_every_start_state_once(num_envs: int, num_epochs: int) -> None:
    cfg = libero_config(
        total_num_envs=num_envs,
        group_size=1,
        max_steps_per_rollout_epoch=5,
        auto_reset=False,
        use_ordered_reset_state_ids=True,
    )
    starts = libero_starts(cfg)
    played = []
    for first in range(0, num_envs, num_envs // 5):
        part = ResetStates(cfg, num_envs=num_envs // 5, first_env=first)
        for epoch in range(num_epochs):
            for group, number in zip(part.groups.tolist(), part.ids(epoch, 0 * part.groups).tolist(), strict=True):
                played.append(starts.start(number, starts.own_task(group, num_envs)))
    assert sorted(played) == [(task, trial) for task in range(10) for trial in range(50)]


def test_groups_keep_a_task_where_they_can_be_shared_out_evenly() -> None:
    starts = LiberoStarts(tasks=(4, 5, 6), trials=tuple(range(50)))
    assert [starts.own_task(group, 6) for group in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [starts.own_task(group, 4) for group in range(4)] == [None] * 4
    kept = {starts.start(number, own_task=1) for number in range(1000, 1600)}
    assert kept == {(5, trial) for trial in range(50)}
    # With ordered ids both ways name the same.
    assert [starts.start(number, number % 3) for number in range(150)] == [
        starts.start(number) for number in range(150)
    ]


def test_filters_split_training_from_evaluation() -> None:
    train = libero_starts(libero_config(task_id_filter=[0, 4], trial_id_filter=list(range(40))))
    held_out = libero_starts(libero_config(task_id_filter=[0, 4], trial_id_filter=list(range(40, 50))))
    assert (len(train), len(held_out)) == (80, 20)
    assert {train.start(n) for n in range(80)}.isdisjoint({held_out.start(n) for n in range(20)})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"task_id_filter": [10]}, r"task_id_filter: received \[10\]; libero_object has the numbers 0 to 9"),
        ({"task_id_filter": []}, "task_id_filter"),
        ({"trial_id_filter": [3, 3]}, "trial_id_filter.*each task has the numbers 0 to 49, each once"),
        ({"task_suite_name": "libero_goal", "show_objects": True}, "show_objects.*libero_goal"),
        ({"num_start_states": 501}, "num_start_states: received 501; there are 500"),
        ({"num_start_states": 101, "task_id_filter": [0, 1]}, "num_start_states: received 101; there are 100"),
    ],
)
def test_wrong_filters_are_named_without_a_simulator(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_env_config(libero_config(**wrong))


def test_right_filters_pass() -> None:
    check_libero(libero_config(task_suite_name="libero_90", task_id_filter=[89], trial_id_filter=[49]))
    check_libero(libero_config(show_objects=True, num_start_states=500))
