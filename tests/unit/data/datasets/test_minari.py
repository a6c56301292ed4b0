"""Minari datasets on disk: what is read, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hdf5_files import arrays, write_hdf5

from rlinf.config.schema.data import D4RLDataConfig, MinariDataConfig
from rlinf.data.datasets.episodes import read_episodes
from rlinf.data.datasets.minari import write_minari
from rlinf.errors import DatasetError


def minari(path: Path | str, **keys: int | list[str]) -> MinariDataConfig:
    return MinariDataConfig(format="minari", path=str(path), **keys)


def test_a_minari_folder_and_its_file_are_read_in_the_order_of_numbers(tmp_path: Path) -> None:
    written = [(arrays(3 + number % 3), {"seed": number}) for number in range(12)]
    write_minari(tmp_path / "data-v0", written, {"dataset_id": "data-v0"})
    for place in ("data-v0", "data-v0/data/main_data.hdf5"):
        read = read_episodes(minari(tmp_path / place))
        assert [len(episode) for episode in read] == [3 + number % 3 for number in range(12)]
    first = read[0]
    assert first.obs["states"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert first.actions.tolist() == pytest.approx(np.array([[0.0], [0.1], [0.2]]))
    assert first.rewards.tolist() == [1, 2, 3]
    assert not first.terminated
    assert len(read_episodes(minari(tmp_path / "data-v0", max_episodes=5))) == 5
    described = json.loads((tmp_path / "data-v0/data/metadata.json").read_text())
    assert described["total_episodes"] == 12
    assert described["total_steps"] == sum(len(episode) for episode in read)


def test_parts_of_a_mapping_are_joined_in_the_order_told(tmp_path: Path) -> None:
    group = arrays(2, terminated=True)
    observations = {"goal/position": np.full((3, 1), 7.0), "joints": np.zeros((3, 2, 2))}
    content = {f"episode_0/{name}": value for name, value in group.items() if name != "observations"}
    content |= {f"episode_0/observations/{name}": value for name, value in observations.items()}
    path = write_hdf5(tmp_path / "a.hdf5", content)
    (episode,) = read_episodes(minari(path, state_keys=["joints", "goal/position"]))
    assert episode.obs["states"].tolist() == [[0, 0, 0, 0, 7]] * 3
    assert episode.terminated
    with pytest.raises(DatasetError, match=r"data\.state_keys: .* mapping of goal/position, joints"):
        read_episodes(minari(path))


def test_discrete_actions_stay_integers(tmp_path: Path) -> None:
    write_minari(tmp_path / "d", [({**arrays(2), "actions": np.array([3, 1])}, {})], {})
    (episode,) = read_episodes(minari(tmp_path / "d"))
    assert episode.actions.dtype == torch.int64
    assert episode.actions.tolist() == [3, 1]


def test_what_is_no_dataset_is_told(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"data\.path: there is no '.*main_data\.hdf5'"):
        read_episodes(minari(tmp_path))
    (tmp_path / "text.hdf5").write_text("no")
    with pytest.raises(DatasetError, match="cannot be read as HDF5"):
        read_episodes(minari(tmp_path / "text.hdf5"))
    other = write_hdf5(tmp_path / "other.hdf5", {"episode_0/observations": np.zeros(2)})
    with pytest.raises(DatasetError, match="not Minari's layout"):
        read_episodes(minari(other))
    with pytest.raises(DatasetError, match="not D4RL's layout"):
        read_episodes(D4RLDataConfig(format="d4rl", path=other))
    with pytest.raises(DatasetError, match="holds no episodes"):
        read_episodes(minari(write_hdf5(tmp_path / "none.hdf5", {"a": np.zeros(1)})))
