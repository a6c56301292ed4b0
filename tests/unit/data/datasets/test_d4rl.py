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
