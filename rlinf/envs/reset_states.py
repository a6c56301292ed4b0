"""Which state every episode starts from: a pure function of (seed, epoch, group, episode), never of how work is cut."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import EnvConfig
from rlinf.errors import ConfigError
from rlinf.utils.seeding import derive_seed


class ResetStates:
    """Reset-state ids of the environments ``first_env .. first_env + num_envs - 1``.

    An id names a start state and is the seed that the simulator is reset with. All environments of a group (neighbours
    in the global order of environments) share the id of their k-th episode. Ids are

    - random: new ones for every (epoch, group, episode);
    - fixed (``use_fixed_reset_state_ids``): the same in every epoch;
    - ordered (``use_ordered_reset_state_ids``): 0, 1, 2, ... over groups, then over the ``E`` rollout epochs of a step,
      then episodes: with ``N`` groups, episode ``k`` of group ``g`` in epoch ``e`` of a step starts from
      ``(k * E + e) * N + g``. How many episodes fit into an epoch does not matter: an evaluation that counts ``K`` of
      each environment plays ``0 .. K * E * N - 1``, each once. A next train step begins behind the most that fit.

    Args:
        cfg: The environment's configuration.
        num_envs: Environments of this instance.
        first_env: Global index of the first of them.
    """

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int) -> None:
        self.cfg = cfg
        self.num_groups = cfg.num_groups
        self.groups: npt.NDArray[np.int64] = np.arange(first_env, first_env + num_envs) // cfg.group_size
        self._ids_per_step = cfg.num_ordered_starts(1)

    def group_ids(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return int64 [B]: equal for environments of one group in one epoch, different otherwise."""
        return epoch * self.num_groups + self.groups

    def ids(self, epoch: int, episodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the reset-state id of each environment's next episode.

        Args:
            epoch: Rollout epoch, counted over the whole run; from 0 in every evaluation.
            episodes: int64 [B]; number of the episode within the epoch, from 0.

        Returns:
            int64 [B].
        """
        return np.array(
            [self._id(epoch, int(group), int(episode)) for group, episode in zip(self.groups, episodes, strict=True)],
            dtype=np.int64,
        )

    @lru_cache(maxsize=4096)  # noqa: B019 - lives as long as its environments; read at every chunk
    def _id(self, epoch: int, group: int, episode: int) -> int:
        if self.cfg.use_fixed_reset_state_ids:
            epoch = 0
        if self.cfg.use_ordered_reset_state_ids:
            step, epoch = divmod(epoch, self.cfg.rollout_epoch)
            number = (episode * self.cfg.rollout_epoch + epoch) * self.num_groups + group
            return step * self._ids_per_step + number
        return derive_seed(self.cfg.seed, "reset_state", epoch, group, episode)


def require_start_states(cfg: EnvConfig, available: int) -> None:
    """Check that an evaluation does not play more start states than there are: some would be played twice.

    Args:
        cfg: A section.
        available: Start states that it names.

    Raises:
        ConfigError: ``num_start_states`` is more than that.
    """
    if cfg.num_start_states is not None and cfg.num_start_states > available:
        raise ConfigError(
            f"env.*.num_start_states: received {cfg.num_start_states}; there are {available} start states. Set it to "
            f"{available}, with as many environments x rollout epochs x episodes."
        )
