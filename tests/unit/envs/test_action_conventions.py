"""What the numbers of an action mean, as a table: each row by exact numbers, back and forth."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlinf.config.schema.env import EnvConfig
from rlinf.envs.action_conventions import CONVENTIONS, ActionConvention, convention_of
from rlinf.errors import ConfigError

MOTION = [0.1, -0.2, 0.3, -0.4, 0.5, -0.6]
OPENS = {
    "calvin": 1, "frankasim": 1, "langpick": 1, "libero": -1, "maniskill": 1, "metaworld": -1, "realworld": 1,
    "robosuite": -1,
}  # fmt: skip


def box(*shape: int) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(-1.0, 1.0, shape, np.float32)


def actions(*numbers: float) -> Any:
    return np.array([[numbers]], np.float32)


def test_every_environment_says_how_its_gripper_opens() -> None:
    assert {kind: row.opens for (kind, name), row in CONVENTIONS.items() if name == "native"} == OPENS
    assert {kind: row.opens for (kind, name), row in CONVENTIONS.items() if name != "native"}.items() <= OPENS.items()


@pytest.mark.parametrize("kind", ["libero", "calvin", "maniskill"])
@pytest.mark.parametrize("said", [0.0, 0.4, 0.4999, 0.5, 0.5001, 0.6, 1.0])
def test_rlds_says_0_for_closed_and_1_for_open(kind: str, said: float) -> None:
    closed, middle, opened = {"libero": (1, 0, -1), "calvin": (-1, -1, 1), "maniskill": (-1, -1, 1)}[kind]
    given = actions(*MOTION, said)
    before = given.copy()
    taken = CONVENTIONS[kind, "rlds"].to_simulator(given)
    assert taken[0, 0, 6] == (middle if said == 0.5 else opened if said > 0.5 else closed)
    np.testing.assert_array_equal(taken[..., :6], given[..., :6])
    np.testing.assert_array_equal(given, before)
    assert taken.dtype == np.float32


@pytest.mark.parametrize("kind", ["libero", "calvin", "maniskill"])
def test_rlds_grippers_come_back(kind: str) -> None:
    convention = CONVENTIONS[kind, "rlds"]
    for native, said in ((OPENS[kind], 1.0), (-OPENS[kind], 0.0), (0.0, 0.5)):
        taken = actions(*MOTION, native)
        np.testing.assert_array_equal(convention.to_policy(taken), actions(*MOTION, said))
        if native:
            np.testing.assert_array_equal(convention.to_simulator(convention.to_policy(taken)), taken)
        assert convention.gripper_number(native) == said
    space = convention.policy_space(box(7), env_type=kind)
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.low.tolist() == [-1.0] * 6 + [0.0]
    assert space.high.tolist() == [1.0] * 7


def test_padded_actions_have_three_numbers_that_mean_nothing() -> None:
    convention = CONVENTIONS["metaworld", "padded"]
    np.testing.assert_array_equal(
        convention.to_simulator(actions(0.1, 0.2, 0.3, 9.0, 8.0, 7.0, -0.4)), actions(0.1, 0.2, 0.3, -0.4)
    )
    said = convention.to_policy(actions(0.1, 0.2, 0.3, -0.4))
    np.testing.assert_array_equal(said, actions(0.1, 0.2, 0.3, 0.0, 0.0, 0.0, -0.4))
    np.testing.assert_array_equal(convention.to_simulator(said), actions(0.1, 0.2, 0.3, -0.4))
    space = convention.policy_space(box(4), env_type="metaworld")
    assert space == box(7)
    assert convention.gripper_number(-1.0) == -1.0


@pytest.mark.parametrize("kind", [*OPENS, "gymnasium"])
def test_native_actions_are_left_as_they_are(kind: str) -> None:
    cfg = EnvConfig(env_type=kind, total_num_envs=1, max_episode_steps=1, max_steps_per_rollout_epoch=1)
    convention, given, space = convention_of(cfg), actions(*MOTION, 0.5), box(7)
    assert convention.to_simulator(given) is convention.to_policy(given) is given
    assert convention.policy_space(space, env_type=kind) is space
    assert convention.opens == OPENS.get(kind)


@pytest.mark.parametrize(
    ("row", "space"),
    [
        (("maniskill", "rlds"), box(8)),
        (("maniskill", "rlds"), gymnasium.spaces.Discrete(7)),
        (("metaworld", "padded"), box(7)),
    ],
)
def test_other_actions_than_the_rows_are_refused(row: tuple[str, str], space: gymnasium.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"env\.\*\.action_convention: is of actions .* env_type={row[0]} are"):
        CONVENTIONS[row].policy_space(space, env_type=row[0])


def test_bounds_of_a_simulator_are_kept() -> None:
    low = np.array([-1, -2, -3, -1], np.float32)
    space = ActionConvention(opens=-1, num_unused=3, size=4).policy_space(
        gymnasium.spaces.Box(low, -low), env_type="metaworld"
    )
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.low.tolist() == [-1, -2, -3, -1, -1, -1, -1]
    assert space.high.tolist() == [1, 2, 3, 1, 1, 1, 1]


def test_the_published_table_is_this_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "source-en" / "guides" / "data_collection.md"
    rows = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for kind in cells[0].split(", "):
            if kind in OPENS:
                rows[kind, cells[1]] = (float(cells[2]), float(cells[3]))
    assert rows == {
        key: (row.gripper_number(-(row.opens or 0)), row.gripper_number(row.opens)) for key, row in CONVENTIONS.items()
    }
