"""Which state every episode starts from: a pure function of (seed, epoch, group, episode), never of how work is cut."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import EnvConfig
from rlinf.utils.seeding import derive_seed


class ResetStates:
    """Reset-state ids of the environments ``first_env .. first_env + num_envs - 1``.

    An id names a start state and is the seed that the simulator is reset with. All environments of a group (neighbours
    in the global order of environments) share the id of their k-th episode. Ids are

    - random: new ones for every (epoch, group, episode);
    - fixed (``use_fixed_reset_state_ids``): the same in every epoch;
    - ordered (``use_ordered_reset_state_ids``): 0, 1, 2, ... over groups, then episodes: with ``N`` groups and ``K``
      episodes that fit into one rollout epoch, episode ``k`` of group ``g`` in epoch ``e`` starts from
      ``(e * K + k) * N + g``.

    Args:
        cfg: The environment's configuration.
        num_envs: Environments of this instance.
        first_env: Global index of the first of them.
    """

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int) -> None:
        self.cfg = cfg
        self.num_groups = -(-cfg.total_num_envs // cfg.group_size)
        self.groups: npt.NDArray[np.int64] = np.arange(first_env, first_env + num_envs) // cfg.group_size
        self._episodes_per_epoch = max(1, cfg.max_steps_per_rollout_epoch // cfg.max_episode_steps)

    def group_ids(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return int64 [B]: equal for environments of one group in one epoch, different otherwise."""
        return epoch * self.num_groups + self.groups

    def ids(self, epoch: int, episodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the reset-state id of each environment's next episode.

        Args:
            epoch: Rollout epoch, counted over the whole run.
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
            return (epoch * self._episodes_per_epoch + episode) * self.num_groups + group
        return derive_seed(self.cfg.seed, "reset_state", epoch, group, episode)
