"""Success and rewards of ``PutOnPlate25-v1``, with numbers worked out by hand."""

import pytest
import torch

from rlinf.envs.simulators.maniskill.plates_rules import HoldHistory, is_on_plate

# A plate of radius 0.075 and half height 0.006, and an object of half height 0.02 that rests on it.
REST = 0.026


def on_plate(*offset: float, force: float = 0.2) -> bool:
    result = is_on_plate(
        torch.tensor([offset]),
        plate_sizes=torch.tensor([[0.075, 0.074, 0.006]]),
        half_heights=torch.tensor([0.02]),
        forces=torch.tensor([force]),
    )
    assert result.shape == (1,)
    return bool(result)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ((0.0, 0.0, REST), True),
        ((0.05, -0.06, REST), True),  # 0.078 from the centre
        ((0.0, 0.084, REST), True),
        ((0.0, 0.086, REST), False),  # beyond the edge by more than 1 cm
        ((0.062, 0.062, REST), False),  # within the box, and not within the circle
        ((0.0, 0.0, REST + 0.049), True),
        ((0.0, 0.0, REST + 0.051), False),
        ((0.0, 0.0, -0.001), False),
    ],
)
def test_the_object_has_to_be_over_the_plate_and_near(offset: tuple[float, ...], expected: bool) -> None:
    assert on_plate(*offset) is expected


@pytest.mark.parametrize(("force", "expected"), [(0.0, False), (0.029, False), (0.031, True)])
def test_both_have_to_touch(force: float, expected: bool) -> None:
    assert on_plate(0.0, 0.0, REST, force=force) is expected


def rewards(held: str, *, successes: str | None = None) -> list[float]:
    """Return the rewards of steps in which an object is held (``x``) or not (``.``)."""
    history = HoldHistory(1, torch.device("cpu"))
    values = []
    for step, (hold, success) in enumerate(zip(held, successes or "." * len(held), strict=True), start=1):
        history.update(torch.tensor([hold == "x"]), torch.tensor([step]))
        values.append(round(float(history.reward(torch.tensor([success == "x"]))), 4))
    return values


def test_the_first_hold_and_five_steps_in_a_row_are_rewarded_once_each() -> None:
    assert rewards(".xx...") == [0, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert rewards("xxxx.xxxxx.") == [0.1] * 9 + [0.2] * 2


def test_success_counts_after_a_hold_only() -> None:
    assert rewards("...", successes=".xx") == [0, 0, 0]
    assert rewards("x...", successes="..x.") == [0.1, 0.1, 1.1, 0.1]


def test_a_step_counts_once_however_often_it_is_looked_at() -> None:
    history = HoldHistory(2, torch.device("cpu"))
    held = torch.tensor([True, True])
    for steps in ([1, 1], [1, 1], [1, 2], [1, 3], [1, 4]):
        history.update(held, torch.tensor(steps))
    assert not history.was_held_long.any()
    history.update(held, torch.tensor([1, 5]))
    assert history.was_held_long.tolist() == [False, True]


def test_an_episode_begins_without_the_holds_of_the_one_before() -> None:
    history = HoldHistory(2, torch.device("cpu"))
    for step in range(1, 6):
        history.update(torch.tensor([True, True]), torch.tensor([step, step]))
    history.reset(torch.tensor([1]))
    assert history.was_held.tolist() == history.was_held_long.tolist() == [True, False]
    for step in range(1, 5):
        history.update(torch.tensor([True, True]), torch.tensor([5, step]))
    assert history.was_held_long.tolist() == [True, False]
