from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf.data.lerobot import FrameSampler, split_episodes
from rlinf.data.lerobot.dataset import EpisodeRecord
from rlinf.errors import DatasetError


@given(num_frames=st.integers(4, 60), batches=st.integers(1, 3), num_ranks=st.integers(1, 3), seed=st.integers(0, 9))
def test_ranks_share_batches_in_which_every_frame_comes_once_an_epoch(num_frames, batches, num_ranks, seed):
    size = max(num_frames // (batches * num_ranks), 1) * num_ranks
    if size > num_frames:
        size = num_ranks
    frames = np.arange(100, 100 + num_frames)
    whole = FrameSampler(frames, size, seed)
    ranks = [FrameSampler(frames, size, seed, rank, num_ranks) for rank in range(num_ranks)]
    for epoch in range(2):
        drawn = []
        for number in range(whole.batches_per_epoch):
            step = epoch * whole.batches_per_epoch + number
            batch = whole.batch(step)
            shares = [rank.batch(step) for rank in ranks]
            assert [len(share) for share in shares] == [size // num_ranks] * num_ranks
            assert sorted(np.concatenate(shares)) == sorted(batch)
            drawn += batch.tolist()
        assert len(set(drawn)) == len(drawn) > num_frames - size
        assert set(drawn) <= set(frames.tolist())


def test_epochs_differ_and_a_step_is_drawn_again_alike():
    sampler = FrameSampler(np.arange(64), 64, seed=3)
    assert sampler.batch(0).tolist() != sampler.batch(1).tolist()
    assert FrameSampler(np.arange(64), 64, seed=3).batch(1).tolist() == sampler.batch(1).tolist()
    assert FrameSampler(np.arange(64), 64, seed=4).batch(1).tolist() != sampler.batch(1).tolist()


def test_frames_are_those_of_the_chosen_episodes():
    dataset = SimpleNamespace(episodes=[EpisodeRecord(3, 0, ""), EpisodeRecord(2, 3, ""), EpisodeRecord(4, 5, "")])
    sampler = FrameSampler.of_episodes(dataset, [1, 2], batch_size=6, seed=0)
    assert sorted(sampler.batch(0).tolist()) == [3, 4, 5, 6, 7, 8]


def test_batches_that_cannot_be_made_are_errors():
    with pytest.raises(DatasetError, match="multiple"):
        FrameSampler(np.arange(9), 4, 0, num_ranks=3)
    with pytest.raises(DatasetError, match="fewer"):
        FrameSampler(np.arange(3), 4, 0)


def test_episodes_are_divided_once_and_for_all():
    train, val = split_episodes(20, val_share=0.25, seed=1)
    assert sorted(train + val) == list(range(20))
    assert len(val) == 5
    assert split_episodes(20, val_share=0.25, seed=1) == (train, val)
    assert split_episodes(20, val_share=0.25, seed=2) != (train, val)
    assert split_episodes(3, val_share=0.0, seed=1) == ([0, 1, 2], [])
    assert [len(part) for part in split_episodes(2, val_share=0.01, seed=1)] == [1, 1]
