"""Recorded episodes, and the transitions that follow from them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hdf5_files import arrays

from rlinf.config.schema.data import DataConfig, MinariDataConfig
from rlinf.data.datasets import episodes
from rlinf.data.datasets.episodes import Episode, chunk_episodes, read_episodes, register_data_format
from rlinf.data.datasets.minari import write_minari
from rlinf.data.replay.buffer import Transitions
from rlinf.errors import DatasetError, RegistryError


def minari(path: Path, **keys: Any) -> MinariDataConfig:
    return MinariDataConfig(format="minari", path=str(path), **keys)


def two_episodes() -> list[Episode]:
    def episode(length: int, first: int, terminated: bool) -> Episode:
        states = torch.arange(first, first + length + 1.0).unsqueeze(1)
        return Episode({"states": states}, states[:-1] / 10, torch.full((length,), 2.0), terminated)

    return [episode(3, 0, True), episode(1, 10, False)]


def chunked(**keys: bool) -> Transitions:
    return chunk_episodes(
        two_episodes(),
        chunk=2,
        gamma=0.5,
        reward_coef=3.0,
        report=lambda obs, actions: {**obs, "action": actions},
        **keys,
    )


def test_every_step_begins_a_chunk_and_those_at_the_end_are_short() -> None:
    rows = chunked(with_next=True)
    assert rows.inputs["states"].flatten().tolist() == [0, 1, 2, 10]
    assert rows.actions.squeeze(-1).tolist() == [
        pytest.approx(chunk) for chunk in ([0.0, 0.1], [0.1, 0.2], [0.2, 0.0], [1.0, 0.0])
    ]
    assert rows.lengths.tolist() == [2, 2, 1, 1]
    assert rows.rewards.tolist() == [9, 9, 6, 6]  # 3 (2 + 0.5 * 2), or 3 * 2
    assert rows.next_inputs["states"].flatten().tolist() == [2, 3, 3, 11]
    assert rows.terminated.tolist() == [False, True, True, False]


def test_what_follows_is_kept_only_where_it_is_needed() -> None:
    assert chunked(with_next=False).next_inputs == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.array([0.0, np.nan])}, "holds rewards that are NaN"),
        ({"observations": np.zeros((2, 2))}, "one action per reward and one observation more"),
        ({"actions": np.zeros((1, 1))}, "has 2 rewards, 1 actions"),
    ],
)
def test_damaged_episodes_are_refused_by_number(tmp_path: Path, change: dict[str, np.ndarray], message: str) -> None:
    write_minari(tmp_path / "d", [(arrays(2), {}), ({**arrays(2), **change}, {})], {})
    with pytest.raises(DatasetError, match=f"episode 1 of .*{message}"):
        read_episodes(minari(tmp_path / "d"))


def test_a_format_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes.data_formats, "_entries", dict(episodes.data_formats._entries))
    register_data_format("memory", lambda cfg: iter(two_episodes()))
    assert len(read_episodes(DataConfig(format="memory", path="x"))) == 2
    with pytest.raises(RegistryError, match="Did you mean 'memory'"):
        read_episodes(DataConfig(format="memry", path="x"))
