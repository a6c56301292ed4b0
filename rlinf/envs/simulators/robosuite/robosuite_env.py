"""``env_type: robosuite``: robosuite's own tasks, state observations or cameras."""

from __future__ import annotations

from rlinf.envs.simulators.simulator_vector import SimulatorVectorEnv


class RobosuiteEnv(SimulatorVectorEnv):
    """robosuite: ``states`` float32 [B, S], the whole state, and ``task_descriptions``.

    With ``image_size`` the policy sees ``main_images`` and maybe ``wrist_images`` uint8 [B, H, W, 3], and ``states``
    float32 [B, 8] (16 with two arms): position, axis times angle and fingers of the hand.

    Actions are the controller's, in [-1, 1]: with ``OSC_POSE`` 7 numbers for each arm, motion and rotation of the hand
    and the gripper, which -1 opens. Success is the task's own predicate and ends the episode. Posture and positions are
    sampled anew at each reset from the reset-state id.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        MissingPackageError: robosuite is not installed.
    """
