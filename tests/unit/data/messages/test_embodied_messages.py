import dataclasses

import pytest
import torch

from rlinf.data.messages.embodied import ChunkStep, Trajectory


def chunk(num_envs: int = 4, final: tuple[int, int] = (1, 3)) -> ChunkStep:
    obs = {
        "states": torch.arange(num_envs).float().unsqueeze(1),
        "task_descriptions": [f"task {i}" for i in range(num_envs)],
    }
    final_obs = {"states": torch.tensor([[10.0 + i] for i in final]), "task_descriptions": [f"end {i}" for i in final]}
    flags = torch.zeros(num_envs, 2, dtype=torch.bool)
    return ChunkStep(
        obs=obs,
        rewards=torch.arange(num_envs * 2).float().view(num_envs, 2),
        terminations=flags,
        truncations=flags,
        executed=~flags,
        final_obs=final_obs if final else None,
        final_ids=torch.tensor(final) if final else None,
        intervene_action=torch.arange(num_envs * 4).float().view(num_envs, 2, 2),
        intervene_flag=torch.arange(num_envs * 2).view(num_envs, 2) % 3 == 0,
        expert_action=-torch.arange(num_envs * 4).float().view(num_envs, 2, 2),
    )


def test_rows_keep_final_observations_with_their_environments() -> None:
    part = chunk().rows(2, 4)
    assert part.obs["task_descriptions"] == ["task 2", "task 3"]
    assert part.final_ids.tolist() == [1]
    assert part.final_obs["states"].tolist() == [[13.0]]
    assert part.final_obs["task_descriptions"] == ["end 3"]
    assert chunk().rows(2, 3).final_ids is None


def test_concat_undoes_rows() -> None:
    whole = chunk()
    joined = ChunkStep.concat([whole.rows(0, 1), whole.rows(1, 3), whole.rows(3, 4)])
    assert torch.equal(joined.rewards, whole.rewards)
    assert joined.final_ids.tolist() == [1, 3]
    assert torch.equal(joined.final_obs["states"], whole.final_obs["states"])
    assert joined.obs["task_descriptions"] == whole.obs["task_descriptions"]
    assert torch.equal(joined.intervene_action, whole.intervene_action)
    assert torch.equal(joined.intervene_flag, whole.intervene_flag)
    assert torch.equal(joined.expert_action, whole.expert_action)


def test_what_was_done_is_what_somebody_else_did_or_else_what_the_policy_wanted() -> None:
    wanted = torch.zeros(4, 2, 2)
    assert torch.equal(chunk().executed_actions(wanted), chunk().intervene_action)
    alone = dataclasses.replace(chunk(), intervene_action=None, intervene_flag=None)
    assert alone.executed_actions(wanted) is wanted
    assert ChunkStep.concat([alone.rows(0, 2), alone.rows(2, 4)]).intervene_flag is None


def test_an_experts_labels_are_actions_that_the_policy_has_not_chosen() -> None:
    nothing = torch.zeros(4, 2, dtype=torch.bool)
    labelled = dataclasses.replace(chunk(), intervene_flag=nothing)
    assert (labelled.has_foreign_actions, labelled.has_interventions) == (True, False)
    assert not dataclasses.replace(labelled, expert_action=None).has_foreign_actions
    assert dataclasses.replace(chunk(), expert_action=None).has_foreign_actions


def trajectory(env_ids: list[int]) -> Trajectory:
    num_envs = len(env_ids)
    ids = torch.tensor(env_ids)
    rows = ids.float().view(1, -1, 1).expand(3, num_envs, 2)
    flags = torch.zeros(3, num_envs, 2, dtype=torch.bool)
    return Trajectory(
        forward_inputs={"states": rows.clone()},
        logprobs=rows.unsqueeze(-1).clone(),
        values=torch.zeros(4, num_envs, 1) + ids.float().view(1, -1, 1),
        rewards=rows.clone(),
        terminations=flags,
        truncations=flags,
        executed=~flags,
        final_values=-ids.float().view(1, -1, 1).expand(3, num_envs, 1),
        group_ids=ids // 2,
        env_ids=ids,
        versions=ids.expand(3, num_envs).clone(),
        intervened=rows % 2 == 0,
    )


def test_trajectories_are_joined_and_sorted_by_environment() -> None:
    joined = Trajectory.concat([trajectory([5, 4]), trajectory([2, 0, 3, 1])]).sorted()
    assert joined.env_ids.tolist() == list(range(6))
    assert joined.num_envs == 6
    assert joined.num_steps == 3
    for field in (joined.rewards, joined.forward_inputs["states"]):
        assert field[0, :, 0].tolist() == list(range(6))
    assert joined.versions.tolist() == [list(range(6))] * 3
    assert joined.values[:, :, 0].tolist() == [list(range(6))] * 4
    assert joined.final_values[:, :, 0].tolist() == [[-row for row in range(6)]] * 3
    assert joined.intervened[0, :, 0].tolist() == [True, False] * 3
    assert joined.group_ids.tolist() == [0, 0, 1, 1, 2, 2]


def test_envs_cuts_every_field() -> None:
    part = trajectory([0, 1, 2, 3]).envs(1, 3)
    assert part.env_ids.tolist() == [1, 2]
    assert part.final_values[0, :, 0].tolist() == [-1, -2]
    assert all(
        getattr(part, f.name).shape[0 if f.name.endswith("ids") else 1] == 2
        for f in dataclasses.fields(part)
        if isinstance(getattr(part, f.name), torch.Tensor)
    )


def test_messages_cannot_be_changed_after_they_were_sent() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        chunk().rewards = torch.zeros(4, 2)
