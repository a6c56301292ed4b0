"""A guest's chunk loop answers as the host's own does; batches may stop rows themselves, or not."""

from typing import Any

import guest_simulator
import numpy as np
import pytest
import toy_envs

from rlinf.envs.guests.rows import GuestRows, Singles
from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule
from rlinf.envs.single_env import SingleEnvRows, SingleEnvSpec

NUM_ENVS, NUM_RECORDED = 3, 2


def guest(batch: Any = None) -> GuestRows:
    singles = Singles(guest_simulator.make, num_envs=NUM_ENVS, first_env=0, num_recorded=NUM_RECORDED, init_params={})
    return GuestRows(batch or singles, num_envs=NUM_ENVS, num_recorded=NUM_RECORDED)


def host() -> SingleEnvRows:
    spec = SingleEnvSpec(
        env_type="toy", factory=toy_envs.make_counting_env, num_envs=NUM_ENVS, num_recorded=NUM_RECORDED
    )
    return SingleEnvRows(spec)


def request(seed: int, **changes: Any) -> ChunkRequest:
    generator = np.random.default_rng(seed)
    asked: dict[str, Any] = {
        "actions": generator.normal(size=(NUM_ENVS, 4, 1)).astype(np.float32),
        "active": generator.random(NUM_ENVS) < 0.8,
        "steps": np.zeros(NUM_ENVS, np.int64),
        "next_seeds": generator.integers(0, 100, NUM_ENVS),
        "rule": EpisodeRule(max_episode_steps=int(generator.integers(2, 9)), ignore_terminations=bool(seed % 3 == 0)),
        "observes": True,
    }
    return ChunkRequest(**{**asked, **changes})


def as_content(asked: ChunkRequest) -> dict[str, Any]:
    rule = [asked.rule.max_episode_steps, asked.rule.ignore_terminations]
    names = ("actions", "active", "steps", "next_seeds", "observes")
    return {**{name: getattr(asked, name) for name in names}, "rule": rule}


def test_chunks_are_those_of_the_host() -> None:
    ours, theirs = host(), guest()
    rows, seeds = np.arange(NUM_ENVS), np.array([3, 4, 11])
    first, other = ours.reset(rows, seeds), theirs.reset(rows, seeds)
    assert first.obs["states"].tolist() == other["obs"]["states"].tolist()
    assert sorted(first.frames) == sorted(map(int, other["frames"])) == [0, 1]
    ended = 0
    for seed in range(12):
        asked = request(seed, next_seeds=None) if seed % 4 == 3 else request(seed)
        expected, got = ours.run_chunk(asked), theirs.run_chunk(as_content(asked))
        for name in ("rewards", "terminations", "truncations", "successes", "executed", "final_ids"):
            assert getattr(expected, name).tolist() == got[name].tolist(), name
        assert expected.obs["states"].tolist() == got["obs"]["states"].tolist()
        for name in ("frames", "reset_frames", "observations"):
            assert sorted(getattr(expected, name)) == sorted(map(int, got[name])), name
        for row, seen in expected.observations.items():
            assert [step["states"].tolist() for step in seen] == [
                step["states"].tolist() for step in got["observations"][str(row)]
            ]
        for row, frames in expected.frames.items():
            assert np.array_equal(frames, got["frames"][str(row)])
        if expected.final_obs is not None:
            assert expected.final_obs["states"].tolist() == got["final_obs"]["states"].tolist()
        assert expected.reports_success == got["reports_success"]
        ended += len(got["final_ids"])
    assert ended >= 6
    ours.close()
    theirs.close()


class WholeChunks:
    """A simulator that executes chunks as wholes, also past the end of episodes and for rows at rest."""

    action_low = action_high = np.zeros(1, np.float32)

    def reset(self, rows: list[int], seeds: list[int]) -> list[dict[str, Any]]:
        return [{"states": np.array([seed, 0.0], np.float32)} for seed in seeds]

    def run_chunk(self, actions: Any, active: Any) -> list[Any]:
        del active
        ends = np.array([1, 3, 99])
        everything = np.ones(NUM_ENVS, np.float32)
        return [
            ([{"states": np.array([row, step], np.float32)} for row in range(NUM_ENVS)], everything * (step + 1),
             step >= ends, step > ends, step >= ends)
            for step in range(actions.shape[1])
        ]  # fmt: skip

    def render(self, row: int) -> None:
        return None

    def close(self) -> None:
        pass


def test_of_a_whole_chunk_nothing_counts_after_an_episode_ended() -> None:
    rows = guest(WholeChunks())
    rows.reset(np.arange(NUM_ENVS), np.arange(NUM_ENVS))
    active = np.array([True, True, False])
    rule = EpisodeRule(max_episode_steps=50, ignore_terminations=False)
    chunk = rows.run_chunk(as_content(request(0, active=active, next_seeds=None, rule=rule)))
    assert chunk["executed"].tolist() == [[True, True, False, False], [True] * 4, [False] * 4]
    assert chunk["rewards"].tolist() == [[1, 2, 0, 0], [1, 2, 3, 4], [0] * 4]
    assert chunk["terminations"].sum(axis=1).tolist() == [1, 1, 0]
    assert not chunk["truncations"].any()
    assert chunk["successes"].tolist() == [[False, True, False, False], [False] * 3 + [True], [False] * 4]
    assert chunk["obs"]["states"].tolist() == [[0, 1], [1, 3], [2, 0]]
    assert chunk["final_obs"]["states"].tolist() == [[0, 1], [1, 3]]
    assert "no image" in chunk["render_error"]


def test_spaces_say_what_a_row_holds() -> None:
    spaces = guest().spaces()
    assert spaces["observation"] == {"states": ["<f4", [2]], "task_descriptions": "text"}
    assert (spaces["action_low"].tolist(), spaces["action_high"].tolist()) == ([-10.0], [10.0])


@pytest.mark.parametrize("reports", [True, False])
def test_success_is_reported_where_the_simulator_says_it(reports: bool) -> None:
    class Silent(guest_simulator.CountingRow):
        def step(self, action: Any) -> Any:
            row, reward, terminated, truncated, success = super().step(action)
            return row, reward, terminated, truncated, success if reports else None

    rows = GuestRows(
        Singles(Silent, num_envs=1, first_env=0, num_recorded=0, init_params={}), num_envs=1, num_recorded=0
    )
    rows.reset(np.zeros(1, np.int64), np.zeros(1, np.int64))
    asked = request(
        1, actions=np.zeros((1, 3, 1), np.float32), active=np.ones(1, np.bool_), steps=np.zeros(1, np.int64)
    )
    assert rows.run_chunk(as_content(asked))["reports_success"] is reports
