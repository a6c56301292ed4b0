"""What the numbers of actions mean, as one table: how policies say and simulators take them; imports no torch.

Everything above an environment speaks the convention that ``env.*.action_convention`` names: the policy, scripted
policies, operators, replays and data sets. Only ``VectorEnv`` turns actions round, right before they are executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import EnvConfig
from rlinf.errors import ConfigError

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ActionConvention:
    """A row of the table. Motion and rotation are the simulator's own in all of them.

    Attributes:
        opens: The simulator's last number that opens the gripper, 1 or -1; minus it closes. None is not known.
        unit_gripper: Policies say 0 for a closed gripper and 1 for an open one; more than a half becomes the
            simulator's number that opens, less the one that closes, and nothing is between.
        middle: What the simulator takes for exactly a half.
        num_unused: Numbers that policies say before the gripper's, and the simulator does not have.
        size: Numbers of the simulator's action; None is any.
    """

    opens: Literal[-1, 1] | None = None
    unit_gripper: bool = False
    middle: float = 0.0
    num_unused: int = 0
    size: int | None = None

    @property
    def is_native(self) -> bool:
        """Whether policies say what the simulator takes."""
        return not self.unit_gripper and not self.num_unused

    def policy_space(self, space: gymnasium.Space[Any], *, env_type: str) -> gymnasium.Space[Any]:
        """Return the space of one action as policies say it.

        Args:
            space: The simulator's.
            env_type: For the message.

        Raises:
            ConfigError: The simulator's actions are not those that the convention is of.
        """
        if self.is_native:
            return space
        if not isinstance(space, gymnasium.spaces.Box) or space.shape != (self.size,):
            raise ConfigError(
                f"env.*.action_convention: is of actions with {self.size} numbers; those of this env_type={env_type} "
                f"are {space}. Set it to native, or choose another controller."
            )
        low, high = (self._widened(bound, unused) for bound, unused in ((space.low, -1.0), (space.high, 1.0)))
        if self.unit_gripper:
            low[-1], high[-1] = 0.0, 1.0
        return gymnasium.spaces.Box(low, high, dtype=space.dtype.type)

    def to_simulator(self, said: Numbers) -> Numbers:
        """Return what the simulator takes, [..., N], for what a policy says, [..., A]."""
        if self.is_native:
            return said
        gripper = said[..., -1:]
        if self.unit_gripper:
            assert self.opens is not None
            taken = self.opens * np.sign(gripper - 0.5)
            gripper = np.where(gripper == 0.5, self.middle, taken).astype(said.dtype)
        return np.concatenate([said[..., : said.shape[-1] - 1 - self.num_unused], gripper], -1)

    def to_policy(self, taken: Numbers) -> Numbers:
        """Return what a policy says, [..., A], so that the simulator takes these actions, [..., N]."""
        if self.is_native:
            return taken
        said = self._widened(taken, 0.0)
        said[..., -1] = self.gripper_number(taken[..., -1])
        return said

    def gripper_number(self, taken: Any) -> Any:
        """Return what a policy says, a number or an array, for the simulator's last number."""
        if not self.unit_gripper:
            return taken
        assert self.opens is not None
        return (self.opens * taken + 1.0) / 2.0

    def _widened(self, taken: Numbers, unused: float) -> Numbers:
        """Return a copy with the numbers that the simulator does not have."""
        between = np.full((*taken.shape[:-1], self.num_unused), unused, taken.dtype)
        return np.concatenate([taken[..., :-1], between, taken[..., -1:]], -1)


NATIVE = "native"
CONVENTIONS: dict[tuple[str, str], ActionConvention] = {
    ("calvin", NATIVE): ActionConvention(opens=1),
    ("calvin", "rlds"): ActionConvention(opens=1, unit_gripper=True, middle=-1.0, size=7),
    ("frankasim", NATIVE): ActionConvention(opens=1),
    ("langpick", NATIVE): ActionConvention(opens=1),
    ("libero", NATIVE): ActionConvention(opens=-1),
    # robosuite leaves the fingers where they are at 0.
    ("libero", "rlds"): ActionConvention(opens=-1, unit_gripper=True, middle=0.0, size=7),
    ("maniskill", NATIVE): ActionConvention(opens=1),
    ("maniskill", "rlds"): ActionConvention(opens=1, unit_gripper=True, middle=-1.0, size=7),
    ("metaworld", NATIVE): ActionConvention(opens=-1),
    ("metaworld", "padded"): ActionConvention(opens=-1, num_unused=3, size=4),
    ("realworld", NATIVE): ActionConvention(opens=1),
    ("robosuite", NATIVE): ActionConvention(opens=-1),
}
"""By ``env_type`` and ``action_convention``. Others take what policies say, and their grippers are unknown."""


def convention_of(env: EnvConfig) -> ActionConvention:
    """Return the row of an environment."""
    return CONVENTIONS.get((env.env_type, env.action_convention), ActionConvention())
