"""Datasets on disk: what is read, what transitions follow from it, and what is refused."""

import json

import numpy as np
import pytest
import torch

from rlinf.config.schema.data import D4RLDataConfig, DataConfig, MinariDataConfig
from rlinf.data.datasets import episodes
from rlinf.data.datasets.episodes import Episode, chunk_episodes, read_episodes, register_data_format
from rlinf.data.datasets.minari import write_minari
from rlinf.errors import DatasetError, RegistryError

h5py = pytest.importorskip("h5py", reason="needs the package h5py")


def arrays(length, terminated=False):
    ends = np.zeros(length, bool)
    ends[-1] = True
    return {
        "observations": np.arange(2.0 * (length + 1)).reshape(length + 1, 2),
        "actions": np.arange(1.0 * length).reshape(length, 1) / 10,
        "rewards": np.arange(1.0, length + 1),
        "terminations": ends & terminated,
        "truncations": ends & (not terminated),
    }


def write_hdf5(path, content):
    with h5py.File(path, "w") as file:
        for name, value in content.items():
            file[name] = value
    return str(path)


def minari(path, **keys):
    return MinariDataConfig(format="minari", path=str(path), **keys)


def test_a_minari_folder_and_its_file_are_read_in_the_order_of_numbers(tmp_path):
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


def test_parts_of_a_mapping_are_joined_in_the_order_told(tmp_path):
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


def test_discrete_actions_stay_integers(tmp_path):
    write_minari(tmp_path / "d", [({**arrays(2), "actions": np.array([3, 1])}, {})], {})
    (episode,) = read_episodes(minari(tmp_path / "d"))
    assert episode.actions.dtype == torch.int64
    assert episode.actions.tolist() == [3, 1]


@pytest.mark.parametrize("with_next", [True, False])
def test_a_d4rl_file_is_cut_where_episodes_end(tmp_path, with_next):
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


def two_episodes():
    def episode(length, first, terminated):
        states = torch.arange(first, first + length + 1.0).unsqueeze(1)
        return Episode({"states": states}, states[:-1] / 10, torch.full((length,), 2.0), terminated)

    return [episode(3, 0, True), episode(1, 10, False)]


def chunked(**keys):
    return chunk_episodes(
        two_episodes(),
        chunk=2,
        gamma=0.5,
        reward_coef=3.0,
        report=lambda obs, actions: {**obs, "action": actions},
        **keys,
    )


def test_every_step_begins_a_chunk_and_those_at_the_end_are_short():
    rows = chunked(with_next=True)
    assert rows.inputs["states"].flatten().tolist() == [0, 1, 2, 10]
    assert rows.actions.squeeze(-1).tolist() == [
        pytest.approx(chunk) for chunk in ([0.0, 0.1], [0.1, 0.2], [0.2, 0.0], [1.0, 0.0])
    ]
    assert rows.lengths.tolist() == [2, 2, 1, 1]
    assert rows.rewards.tolist() == [9, 9, 6, 6]  # 3 (2 + 0.5 * 2), or 3 * 2
    assert rows.next_inputs["states"].flatten().tolist() == [2, 3, 3, 11]
    assert rows.terminated.tolist() == [False, True, True, False]


def test_what_follows_is_kept_only_where_it_is_needed():
    assert chunked(with_next=False).next_inputs == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.array([0.0, np.nan])}, "holds rewards that are NaN"),
        ({"observations": np.zeros((2, 2))}, "one action per reward and one observation more"),
        ({"actions": np.zeros((1, 1))}, "has 2 rewards, 1 actions"),
    ],
)
def test_damaged_episodes_are_refused_by_number(tmp_path, change, message):
    write_minari(tmp_path / "d", [(arrays(2), {}), ({**arrays(2), **change}, {})], {})
    with pytest.raises(DatasetError, match=f"episode 1 of .*{message}"):
        read_episodes(minari(tmp_path / "d"))


def test_what_is_no_dataset_is_told(tmp_path):
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


def test_a_format_from_outside(monkeypatch):
    monkeypatch.setattr(episodes.data_formats, "_entries", dict(episodes.data_formats._entries))
    register_data_format("memory", lambda cfg: iter(two_episodes()))
    assert len(read_episodes(DataConfig(format="memory", path="x"))) == 2
    with pytest.raises(RegistryError, match="Did you mean 'memory'"):
        read_episodes(DataConfig(format="memry", path="x"))
