"""D4RL files are cut where episodes end."""

from pathlib import Path

import numpy as np
import pytest
from hdf5_files import write_hdf5

from rlinf.config.schema.data import D4RLDataConfig
from rlinf.data.datasets.episodes import read_episodes


@pytest.mark.parametrize("with_next", [True, False])
def test_a_d4rl_file_is_cut_where_episodes_end(tmp_path: Path, with_next: bool) -> None:
    states = np.arange(7.0).reshape(7, 1)
    content = {
        "observations": states,
        "actions": -states,
        "rewards": np.ones(7),
        "terminals": np.array([0, 1, 0, 0, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0], bool),
    }
    if with_next:
        content["next_observations"] = states + 0.5
    path = write_hdf5(tmp_path / "data.hdf5", content)
    read = read_episodes(D4RLDataConfig(format="d4rl", path=path))
    seen = [episode.obs["states"].flatten().tolist() for episode in read]
    assert [episode.terminated for episode in read] == [True, False, False]
    if with_next:
        assert seen == [[0, 1, 1.5], [2, 3, 4, 4.5], [5, 6, 6.5]]
    else:  # what follows a termination does not matter; where it is cut off the last step is lost
        assert seen == [[0, 1, 1], [2, 3, 4], [5, 6]]
    assert [len(episode) for episode in read] == ([2, 3, 2] if with_next else [2, 2, 1])


def test_a_file_without_timeouts_is_cut_where_observations_do_not_go_on(tmp_path: Path) -> None:
    states = np.array([0.0, 1.0, 5.0, 6.0, 9.0]).reshape(5, 1)
    path = write_hdf5(
        tmp_path / "data.hdf5",
        {
            "observations": states,
            "next_observations": np.array([1.0, 2.0, 6.0, 7.0, 10.0]).reshape(5, 1),
            "actions": -states,
            "rewards": np.ones(5),
            "terminals": np.array([0, 0, 0, 1, 0], bool),
        },
    )
    read = read_episodes(D4RLDataConfig(format="d4rl", path=path))
    assert [episode.obs["states"].flatten().tolist() for episode in read] == [[0, 1, 2], [5, 6, 7], [9, 10]]
    assert [episode.terminated for episode in read] == [False, True, False]


def test_rewards_are_scaled_by_the_range_of_returns_and_shifted(tmp_path: Path) -> None:
    content = {
        "observations": np.zeros((5, 1)),
        "actions": np.zeros((5, 1)),
        "rewards": np.array([1.0, 3.0, 2.0, 5.0, 7.0]),
        "terminals": np.array([0, 1, 1, 0, 1], bool),
    }
    path = write_hdf5(tmp_path / "data.hdf5", content)
    read = read_episodes(D4RLDataConfig(format="d4rl", path=path, normalize_returns=True, reward_offset=-1.0))
    # Returns are 4, 2 and 12: 1000 / (12 - 2) = 100.
    assert [episode.rewards.tolist() for episode in read] == [[99, 299], [199], [499, 699]]
    alike = read_episodes(D4RLDataConfig(format="d4rl", path=path, normalize_returns=True, max_episodes=1))
    assert alike[0].rewards.tolist() == [1, 3]
