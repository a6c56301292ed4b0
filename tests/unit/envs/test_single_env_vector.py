"""Single environments report what a batch simulator reports."""

import torch
from batch_env import BatchEnv, make_config, make_single
from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=25, deadline=None)
@given(
    actions=st.lists(st.integers(-9, 9), min_size=24, max_size=24),
    num_chunks=st.sampled_from([1, 2, 3, 4]),
    auto_reset=st.booleans(),
    ignore_terminations=st.booleans(),
    epoch=st.integers(0, 50),
)
def test_batch_and_single_environments_report_the_same(
    actions: list[int], num_chunks: int, auto_reset: bool, ignore_terminations: bool, epoch: int
) -> None:
    cfg = make_config(
        total_num_envs=2, auto_reset=auto_reset, ignore_terminations=ignore_terminations, use_rel_reward=True
    )
    plan = torch.tensor(actions, dtype=torch.float32).reshape(2, -1, num_chunks, 1)
    with BatchEnv(cfg, num_envs=2) as batch, make_single(cfg, num_envs=2) as single:
        assert torch.equal(batch.reset(epoch)["states"], single.reset(epoch)["states"])
        for number in range(plan.shape[1]):
            first, second = batch.chunk_step(plan[:, number]), single.chunk_step(plan[:, number])
            for name in ("rewards", "terminations", "truncations", "executed"):
                assert torch.equal(getattr(first, name), getattr(second, name)), name
            assert torch.equal(first.obs["states"], second.obs["states"])
            assert first.episodes == second.episodes
            assert (first.final_ids is None) == (second.final_ids is None)
            if first.final_obs is not None and second.final_obs is not None:
                assert torch.equal(first.final_obs["states"], second.final_obs["states"])
