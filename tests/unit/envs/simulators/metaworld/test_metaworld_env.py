"""``env_type: metaworld`` keeps the rules of environments, and shares tasks out over groups."""

import pytest
import torch
from builtin_configs import metaworld_config

from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.simulators.metaworld.metaworld_tasks import BENCHMARKS, PAPER_SENTENCES, SPLITS, TASK_DESCRIPTIONS


# One task that is reset in one pass, one that needs two.
@pytest.mark.parametrize("task_name", ["reach-v3", "drawer-open-v3"])
def test_metaworld_conforms(task_name: str) -> None:
    pytest.importorskip("metaworld")
    with make_vector_env(metaworld_config(task_name=task_name), num_envs=4) as env:
        assert env.action_dim == 4
        assert env.observation_space["states"].shape == (39,)
        obs = env.reset(0)
        assert obs["task_descriptions"] == [TASK_DESCRIPTIONS[task_name]] * 4
        check_vector_env(env, rebuild=lambda: make_vector_env(metaworld_config(task_name=task_name), num_envs=4))


def test_metaworlds_own_limit_ends_no_episode_early() -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(max_episode_steps=510, max_steps_per_rollout_epoch=510)
    with make_vector_env(cfg, num_envs=1) as env:
        env.reset(0)
        step = env.chunk_step(torch.zeros(1, 510, 4))
    assert [episode["episode_len"] for episode in step.episodes] == [510.0]


@pytest.mark.parametrize("num_env_processes", [0, 2])
def test_a_benchmarks_tasks_are_shared_out_over_the_groups(num_env_processes: int) -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(task_name="mt10", total_num_envs=40, num_env_processes=num_env_processes)
    # The second of ten workers: groups 2 and 3 of the twenty.
    with make_vector_env(cfg, num_envs=4, first_env=4) as env:
        obs = env.reset(0)
        names = [BENCHMARKS["mt10"][number] for number in (2, 2, 3, 3)]
        assert obs["task_descriptions"] == [TASK_DESCRIPTIONS[name] for name in names]
        assert env.observation_space["states"].shape == (49,)
        assert torch.equal(obs["states"][:, 39:], torch.eye(10)[[2, 2, 3, 3]])
        assert torch.equal(obs["states"][0], obs["states"][1])
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=4, first_env=4))


def test_tasks_that_are_seen_are_told_apart_by_their_sentence_alone() -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(
        task_name="mt3", total_num_envs=3, group_size=1, image_size=16, render_quality="light", show_objects=True
    )
    with make_vector_env(cfg, num_envs=3) as env:
        obs = env.reset(0)
        assert obs["task_descriptions"] == [TASK_DESCRIPTIONS[name] for name in BENCHMARKS["mt3"]]
        assert obs["states"].shape == (3, 4)
        assert obs["objects"].shape == (3, 39)
        assert obs["main_images"].shape == (3, 16, 16, 3)
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=3))


def test_tasks_that_are_kept_from_training_show_neither_goal_nor_number() -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(task_name="ml45", task_split="test", total_num_envs=10)
    with make_vector_env(cfg, num_envs=10) as env:
        obs = env.reset(0)
        assert obs["states"].shape == (10, 39)
        assert not obs["states"][:, 36:].any()
        assert obs["states"][:, :36].any(0).sum() > 6
        assert obs["task_descriptions"][::2] == [TASK_DESCRIPTIONS[name] for name in SPLITS["ml45"]["test"]]


def test_each_task_goes_through_its_start_states_in_order() -> None:
    pytest.importorskip("metaworld")
    keys = {"task_name": "ml10", "task_split": "test", "total_num_envs": 10, "group_size": 1, "num_goals": 3}
    cfg = metaworld_config(**keys, rollout_epoch=3, use_ordered_reset_state_ids=True, auto_reset=False)
    with make_vector_env(cfg, num_envs=10) as env:
        states = torch.stack([env.reset(epoch)["states"] for epoch in range(3)])
    # Environments e and e + 5 have one task: of its goals 0, 1, 2 they begin with 0 and 1, then 2 and 0, then 1 and 2.
    for task in range(5):
        starts = [states[epoch, row].tolist() for epoch in range(3) for row in (task, task + 5)]
        assert starts[:3] == starts[3:]
        assert len({tuple(start) for start in starts}) == 3


def test_an_episodes_start_state_can_name_its_task() -> None:
    pytest.importorskip("metaworld")
    keys = {"task_name": "mt3", "total_num_envs": 2, "group_size": 1, "num_goals": 2, "task_sentences": "paper"}
    images = {"image_size": 16, "render_quality": "light", "task_per_episode": True}
    cfg = metaworld_config(**keys, **images, rollout_epoch=6, use_ordered_reset_state_ids=True)
    with make_vector_env(cfg, num_envs=2) as env:
        seen = [env.reset(epoch) for epoch in range(6)]
    said = [sentence for obs in seen for sentence in obs["task_descriptions"]]
    assert said == [PAPER_SENTENCES[name] for name in BENCHMARKS["mt3"]] * 4
    looks = [image.float() for obs in seen for image in obs["main_images"]]
    assert [torch.equal(looks[0], look) for look in looks[1:]] == [number == 6 for number in range(1, 12)]


def test_tasks_of_episodes_need_no_even_shares_and_have_their_one_hot() -> None:
    pytest.importorskip("metaworld")
    cfg = metaworld_config(task_name="mt3", total_num_envs=2, group_size=1, task_per_episode=True)
    with make_vector_env(cfg, num_envs=2) as env:
        seen = [env.reset(epoch) for epoch in range(3)]
        check_vector_env(env, rebuild=lambda: make_vector_env(cfg, num_envs=2))
    said = [sentence for obs in seen for sentence in obs["task_descriptions"]]
    codes = torch.cat([obs["states"][:, 39:] for obs in seen])
    assert [TASK_DESCRIPTIONS[BENCHMARKS["mt3"][number]] for number in codes.argmax(1).tolist()] == said
    assert len(set(said)) > 1


@pytest.mark.parametrize("reward_shaping", [True, False])
def test_success_is_the_reward_and_the_end_where_the_recipe_says_so(reward_shaping: bool) -> None:
    pytest.importorskip("metaworld")
    from rlinf.envs.simulators.metaworld.metaworld_expert import MetaWorldExpert

    steps = {"max_episode_steps": 120, "max_steps_per_rollout_epoch": 120, "auto_reset": False}
    cfg = metaworld_config(task_name="reach-v3", total_num_envs=1, group_size=1, reward_shaping=reward_shaping, **steps)
    expert, episodes = MetaWorldExpert(cfg), []
    with make_vector_env(cfg, num_envs=1) as env:
        obs = env.reset(0)
        while not episodes:
            step = env.chunk_step(expert(obs))
            obs, episodes = step.obs, list(step.episodes)
    assert episodes[0]["success_once"] == 1.0
    assert (episodes[0]["episode_len"] == 120) is reward_shaping
    assert (episodes[0]["return"] == 1.0) is not reward_shaping
