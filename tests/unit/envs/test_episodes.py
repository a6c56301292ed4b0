"""Metrics and shaped rewards over several chunks of an episode, and over several episodes."""

from typing import Any

import numpy as np

from rlinf.envs.episodes import EpisodeTracker
from rlinf.envs.raw_chunk import RawChunk


def make_chunk(
    rewards: list[list[float]], *, lengths: list[int] | None = None, ended: tuple[int, ...] = (), **fields: Any
) -> RawChunk:
    """Return a chunk in which ``lengths`` actions of each row were executed; all of them by default."""
    chunk = RawChunk.empty(np.shape(rewards))
    counts = np.full(len(rewards), len(rewards[0])) if lengths is None else np.array(lengths)
    chunk.executed = np.arange(len(rewards[0])) < counts[:, None]
    chunk.rewards = np.where(chunk.executed, np.array(rewards, np.float32), np.float32(0))
    chunk.final_ids = np.array(ended, np.int64)
    for name, field in fields.items():
        setattr(chunk, name, field)
    return chunk


def solved(*flags: bool) -> dict[str, Any]:
    return {"successes": np.array([list(flags)]), "reports_success": True}


def make_tracker(num_envs: int = 1, *, reward_coef: float = 1.0, use_rel_reward: bool = False) -> EpisodeTracker:
    return EpisodeTracker(num_envs, reward_coef=reward_coef, use_rel_reward=use_rel_reward)


def test_a_success_in_an_earlier_chunk_is_remembered_until_the_episode_ends() -> None:
    tracker = make_tracker()
    tracker.update(make_chunk([[0, 0]], **solved(True, False)))
    tracker.update(make_chunk([[0, 0]], **solved(False, False)))
    _, (first,) = tracker.update(make_chunk([[0, 0]], ended=(0,), **solved(False, False)))
    assert (first["success_once"], first["success_at_end"]) == (1.0, 0.0)
    _, (second,) = tracker.update(make_chunk([[0, 0]], ended=(0,), **solved(False, False)))
    assert (second["success_once"], second["success_at_end"]) == (0.0, 0.0)


def test_success_at_the_end_is_that_of_the_last_executed_action() -> None:
    tracker = make_tracker()
    _, (first,) = tracker.update(make_chunk([[0, 0, 0]], lengths=[2], ended=(0,), **solved(False, True, False)))
    _, (second,) = tracker.update(make_chunk([[0, 0, 0]], lengths=[3], ended=(0,), **solved(False, True, False)))
    assert first["success_at_end"] == 1.0
    assert second["success_at_end"] == 0.0
    assert second["success_once"] == 1.0


def test_success_is_no_metric_of_environments_that_do_not_report_it() -> None:
    tracker = make_tracker()
    _, (metrics,) = tracker.update(make_chunk([[1, 2]], ended=(0,)))
    assert metrics == {"return": 3.0, "reward": 1.5, "episode_len": 2.0}
    tracker.update(make_chunk([[1, 2]], **solved(True, False)))
    _, (later,) = tracker.update(make_chunk([[1, 2]], ended=(0,)))
    assert later["success_once"] == 1.0


def test_every_episode_has_a_return_and_a_length_of_its_own() -> None:
    tracker = make_tracker(2)
    assert tracker.update(make_chunk([[1, 2], [10, 20]]))[1] == ()
    _, first = tracker.update(make_chunk([[3, 9], [30, 40]], lengths=[1, 2], ended=(0,)))
    assert first == ({"return": 6.0, "reward": 2.0, "episode_len": 3.0},)
    assert tracker.steps.tolist() == [0, 4]
    assert tracker.episodes.tolist() == [1, 0]
    _, second = tracker.update(make_chunk([[5, 6], [50, 60]], ended=(0, 1)))
    assert [metrics["return"] for metrics in second] == [11.0, 210.0]
    assert [metrics["episode_len"] for metrics in second] == [2.0, 6.0]
    assert tracker.episodes.tolist() == [2, 1]


def test_returns_are_those_of_the_unshaped_rewards() -> None:
    tracker = make_tracker(reward_coef=10.0, use_rel_reward=True)
    rewards, (metrics,) = tracker.update(make_chunk([[1, 3, 9]], lengths=[2], ended=(0,)))
    assert rewards.tolist() == [[10, 20, 0]]
    assert metrics["return"] == 4.0


def test_relative_rewards_go_on_over_chunks_and_begin_anew_with_episodes() -> None:
    tracker = make_tracker(2, use_rel_reward=True)
    tracker.update(make_chunk([[1, 4], [1, 4]], lengths=[2, 1]))
    rewards, _ = tracker.update(make_chunk([[6, 7], [6, 7]], ended=(0,)))
    assert rewards.tolist() == [[2, 1], [5, 1]]
    # Row 1 executes nothing, and goes on from its last reward.
    rewards, _ = tracker.update(make_chunk([[2, 2], [0, 0]], lengths=[2, 0]))
    assert rewards.tolist() == [[2, 0], [0, 0]]
    rewards, _ = tracker.update(make_chunk([[2, 2], [9, 9]]))
    assert rewards.tolist() == [[0, 0], [2, 0]]


def test_a_restart_begins_episode_0_everywhere() -> None:
    tracker = make_tracker(2, use_rel_reward=True)
    tracker.update(make_chunk([[1, 2], [3, 4]], ended=(0,), successes=np.ones((2, 2), np.bool_), reports_success=True))
    tracker.restart()
    assert (tracker.steps.tolist(), tracker.episodes.tolist()) == ([0, 0], [0, 0])
    rewards, episodes = tracker.update(make_chunk([[5, 5], [5, 5]], ended=(0, 1)))
    assert rewards.tolist() == [[5, 0], [5, 0]]
    assert [metrics["return"] for metrics in episodes] == [10.0, 10.0]
    assert [metrics["success_once"] for metrics in episodes] == [0.0, 0.0]


def test_a_saved_state_is_a_copy_and_brings_everything_back() -> None:
    tracker = make_tracker(use_rel_reward=True)
    tracker.update(make_chunk([[1, 3]], **solved(True, False)))
    saved = tracker.state_dict()
    end = make_chunk([[4, 6]], ended=(0,), **solved(False, False))
    expected = tracker.update(end)
    other = make_tracker(use_rel_reward=True)
    for _ in range(2):
        other.load_state_dict(saved)
        rewards, episodes = other.update(end)
        assert rewards.tolist() == expected[0].tolist() == [[1, 2]]
        assert episodes == expected[1]
        assert other.episodes.tolist() == [1]
