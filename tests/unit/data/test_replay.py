import torch

from rlinf.data.embodied import Trajectory
from rlinf.data.replay import ReplayBuffer, Transitions

STEPS, ENVS, CHUNK = 2, 2, 3


def trajectory():
    """Step 0: env 0 is cut off after two actions, env 1 goes on. Step 1: env 0 terminates at once, env 1 rests."""
    executed = torch.ones(STEPS, ENVS, CHUNK, dtype=torch.bool)
    executed[0, 0, 2:] = executed[1, 0, 1:] = executed[1, 1] = False
    terminations, truncations = torch.zeros_like(executed), torch.zeros_like(executed)
    truncations[0, 0, 1] = terminations[1, 0, 0] = True
    states = torch.arange(4.0).view(STEPS, ENVS, 1)
    return Trajectory(
        forward_inputs={"states": states, "action": states.view(STEPS, ENVS, 1, 1).expand(-1, -1, CHUNK, 1) / 10},
        logprobs=torch.zeros(STEPS, ENVS, CHUNK, 1),
        values=None,
        rewards=torch.tensor([[[1.0, 2.0, 0.0], [1.0, 2.0, 4.0]], [[5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]),
        terminations=terminations,
        truncations=truncations,
        executed=executed,
        final_values=None,
        group_ids=torch.arange(ENVS),
        env_ids=torch.arange(ENVS),
        version=0,
        next_inputs={"states": states + 100},
    )


def numbered(*numbers):
    rows = torch.tensor(numbers, dtype=torch.float32)
    return Transitions(
        inputs={"states": rows.unsqueeze(1)},
        actions=rows.view(-1, 1, 1),
        rewards=rows,
        next_inputs={"states": rows.unsqueeze(1) + 1},
        terminated=rows < 0,
        lengths=torch.ones(len(numbers), dtype=torch.int64),
    )


def test_chunks_become_transitions_by_what_was_executed():
    new = Transitions.from_trajectory(trajectory(), gamma=0.5)
    assert len(new) == 3  # a chunk step of an environment at rest is none
    assert new.inputs["states"].flatten().tolist() == [0, 1, 2]
    assert new.inputs.keys() == {"states"}
    assert new.next_inputs["states"].flatten().tolist() == [100, 101, 102]
    torch.testing.assert_close(new.rewards, torch.tensor([1 + 0.5 * 2, 1 + 0.5 * 2 + 0.25 * 4, 5.0]))
    assert new.lengths.tolist() == [2, 3, 1]
    assert new.terminated.tolist() == [False, False, True]  # cut off is not terminated
    torch.testing.assert_close(new.actions[:, 0, 0], torch.tensor([0.0, 0.1, 0.2]))


def test_joined_trajectories_keep_next_inputs_with_their_environments():
    whole = trajectory()
    joined = Trajectory.concat([whole.envs(1, 2), whole.envs(0, 1)]).sorted()
    assert torch.equal(joined.next_inputs["states"], whole.next_inputs["states"])


def test_the_oldest_make_room():
    replay = ReplayBuffer(5)
    for numbers in ([0, 1, 2], [3, 4, 5], [6]):
        replay.add(numbered(*numbers))
    assert len(replay) == 5
    assert replay.contents().rewards.tolist() == [2, 3, 4, 5, 6]
    replay.add(numbered(*range(10, 20)))
    assert replay.contents().rewards.tolist() == [15, 16, 17, 18, 19]
    assert torch.equal(replay.contents().next_inputs["states"].flatten(), torch.arange(16.0, 21.0))


def test_draws_are_uniform_repeatable_and_keep_transitions_whole():
    replay = ReplayBuffer(100)
    replay.add(numbered(*range(8)))
    first, again, other = (replay.sample(8000, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.rewards, again.rewards)
    assert not torch.equal(first.rewards, other.rewards)
    assert torch.equal(first.inputs["states"].flatten() + 1, first.next_inputs["states"].flatten())
    counts = torch.bincount(first.rewards.long(), minlength=8)
    assert len(counts) == 8
    assert int(counts.min()) > 850  # 1000 expected, standard deviation 30


def test_a_loaded_replay_draws_and_forgets_like_the_saved_one(tmp_path):
    replay = ReplayBuffer(5)
    for start in (0, 3, 6):
        replay.add(numbered(start, start + 1, start + 2))
    torch.save(replay.state_dict(), tmp_path / "replay.pt")
    loaded = ReplayBuffer(5)
    loaded.load_state_dict(torch.load(tmp_path / "replay.pt", weights_only=True))
    for buffer in (replay, loaded):
        buffer.add(numbered(20, 21))
    assert loaded.contents().rewards.tolist() == replay.contents().rewards.tolist() == [6, 7, 8, 20, 21]
    draws = [buffer.sample(9, torch.Generator().manual_seed(3)).rewards for buffer in (replay, loaded)]
    assert torch.equal(*draws)
    loaded.load_state_dict(ReplayBuffer(5).state_dict())
    assert len(loaded) == 0
