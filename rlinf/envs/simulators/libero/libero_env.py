"""``env_type: libero``: the suites of LIBERO, from their published start states."""

from __future__ import annotations

from rlinf.envs.simulators.simulator_vector import SimulatorVectorEnv


class LiberoEnv(SimulatorVectorEnv):
    """robosuite: ``states`` float32 [B, 8], ``main_images`` and ``wrist_images`` uint8 [B, H, W, 3], sentences.

    Actions are 7 numbers in [-1, 1]: motion and rotation of the hand, and the gripper, which -1 opens. Success is the
    task's own predicate and ends the episode; the reward is 1 then and 0 before. A reset-state id names a task and one
    of its start states (``LiberoStarts``); with ``use_ordered_reset_state_ids`` and as many episodes as there are start
    states, an evaluation plays each once.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: A task or the assets are not there.
        MissingPackageError: LIBERO is not installed.
    """
