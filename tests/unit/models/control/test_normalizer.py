"""Running statistics of observations, over ranks and valid rows."""

import torch
from state_policies import build

from rlinf.models.control.normalizer import RunningNormalizer


def test_statistics_do_not_depend_on_how_data_is_split_over_ranks() -> None:
    data = torch.randn(40, 3, dtype=torch.float64) * 3 + 5
    whole, split = RunningNormalizer(3, 10.0), RunningNormalizer(3, 10.0)
    for part in data.split(20):
        whole.update(part, lambda x: x)
    # Two ranks, simulated: what one contributes is added to the other's share by the reduction.
    for part in data.split(20):
        mine, other = part[:7], part[7:]
        calls = iter(
            [
                lambda x, other=other: x + torch.cat([torch.tensor([13.0]), other.sum(0)]),
                lambda x, part=part, other=other: x + ((other - part.mean(0)) ** 2).sum(0),
            ]
        )
        split.update(mine, lambda x, calls=calls: next(calls)(x))
    torch.testing.assert_close(whole.mean, data.mean(0))
    torch.testing.assert_close(whole.var, data.var(0, unbiased=False))
    torch.testing.assert_close(split.mean, whole.mean)
    torch.testing.assert_close(split.var, whole.var)


def test_statistics_travel_in_the_state_dict() -> None:
    policy, other = build(normalize_obs=True), build(normalize_obs=True)
    policy.update_statistics({"states": torch.randn(10, 3) + 4}, torch.ones(10, dtype=torch.bool), lambda x: x)
    other.load_state_dict(policy.state_dict())
    assert torch.equal(other.encoder.normalizer.mean, policy.encoder.normalizer.mean)
    assert other.encoder.normalizer.count == 10


def test_only_valid_rows_enter_the_statistics() -> None:
    policy = build(normalize_obs=True)
    states = torch.cat([torch.zeros(3, 3), torch.full((2, 3), 1e6)])
    policy.update_statistics({"states": states}, torch.tensor([True, True, True, False, False]), lambda x: x)
    assert policy.encoder.normalizer.mean.abs().max() == 0


def test_normalised_observations_are_cut_off() -> None:
    normalizer = RunningNormalizer(2, 3.0)
    normalizer.update(torch.tensor([[0.0, 1.0], [2.0, 5.0]], dtype=torch.float64), lambda x: x)
    found = normalizer(torch.tensor([[2.0, 3.0], [50.0, -50.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [3.0, -3.0]]))
