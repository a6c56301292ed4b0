"""From a policy's actions to a simulator's: checked, on the CPU, clipped and in the space's shape."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from rlinf.errors import ConfigError, EnvironmentFailure, NumericalError


class ActionFormat:
    """Prepares actions for a Box or Discrete space.

    Args:
        space: Space of one action.
        num_envs: ``B``.
        env_type: For messages.

    Raises:
        ConfigError: The space is neither Box nor Discrete.
    """

    def __init__(self, space: gymnasium.Space[Any], *, num_envs: int, env_type: str) -> None:
        if not isinstance(space, gymnasium.spaces.Box | gymnasium.spaces.Discrete):
            raise ConfigError(
                f"env_type={env_type}: the action space {space} is not supported; allowed are Box and Discrete. "
                "Wrap the environment (gymnasium.ActionWrapper) to present one of them."
            )
        self._space = space
        self._num_envs = num_envs
        self._env_type = env_type

    def __call__(self, actions: torch.Tensor) -> npt.NDArray[Any]:
        """Return the actions for the simulator, [B, C, ...].

        Args:
            actions: [B, C, A], or for a discrete space integers [B, C] or [B, C, 1].

        Raises:
            EnvironmentFailure: Shape or range is wrong.
            NumericalError: An action is not finite.
        """
        if isinstance(self._space, gymnasium.spaces.Discrete):
            return self._discrete(self._space, actions)
        return self._box(self._space, actions)

    def _box(self, space: gymnasium.spaces.Box, actions: torch.Tensor) -> npt.NDArray[Any]:
        size = int(np.prod(space.shape))
        if actions.ndim != 3 or actions.shape[0] != self._num_envs or actions.shape[2] != size:
            raise self._wrong_shape(actions, f"[{self._num_envs}, C, {size}]")
        values = actions.detach().to(device="cpu", dtype=torch.float32).numpy()
        if not np.isfinite(values).all():
            rows = np.flatnonzero(~np.isfinite(values).all(axis=(1, 2))).tolist()
            raise NumericalError(
                f"env_type={self._env_type}: the actions of row {rows} are not finite; the policy diverged."
            )
        clipped: npt.NDArray[Any] = np.clip(values, space.low.reshape(-1), space.high.reshape(-1))
        return clipped.astype(space.dtype).reshape(*values.shape[:2], *space.shape)

    def _discrete(self, space: gymnasium.spaces.Discrete, actions: torch.Tensor) -> npt.NDArray[Any]:
        if actions.ndim == 3 and actions.shape[2] == 1:
            actions = actions[:, :, 0]
        if actions.ndim != 2 or actions.shape[0] != self._num_envs or actions.is_floating_point():
            raise self._wrong_shape(actions, f"integers [{self._num_envs}, C]")
        values: npt.NDArray[np.int64] = actions.detach().cpu().numpy().astype(np.int64)
        if values.size and (values.min() < 0 or values.max() >= space.n):
            raise EnvironmentFailure(
                f"env_type={self._env_type}: received discrete actions from {values.min()} to {values.max()}; "
                f"allowed are 0 to {space.n - 1}."
            )
        return values + int(space.start)

    def _wrong_shape(self, actions: torch.Tensor, expected: str) -> EnvironmentFailure:
        return EnvironmentFailure(
            f"env_type={self._env_type}: received actions {list(actions.shape)} ({actions.dtype}), expected {expected}."
        )
