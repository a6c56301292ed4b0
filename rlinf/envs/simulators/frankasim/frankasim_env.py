"""``env_type: frankasim``: a simulated Franka arm picks up a cube."""

from __future__ import annotations

from rlinf.envs.simulators.simulator_vector import SimulatorVectorEnv


class FrankaSimEnv(SimulatorVectorEnv):
    """MuJoCo: ``states`` float32 [B, 13] with the cube's position, or ``image_size`` and two cameras instead of it.

    With cameras ``states`` is [B, 7] (hand, gripper), next to ``main_images`` and ``wrist_images`` uint8 [B, H, W, 3].
    Actions are 4 numbers in [-1, 1]: the way of the hand's target (0.03 m an axis) and the gripper (1 opens). Lifting
    the cube by 0.1 m is success and ends the episode.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        MissingPackageError: MuJoCo is not installed.
    """
