"""``env_type: metaworld``: the Sawyer arm of Meta-World, state observations with the task in words."""

from __future__ import annotations

from rlinf.envs.simulators.simulator_vector import SimulatorVectorEnv


class MetaWorldEnv(SimulatorVectorEnv):
    """Meta-World's 50 tasks: ``states`` float32 [B, 39] (goal visible), ``task_descriptions`` list of ``B`` strings.

    With ``image_size`` the policy sees what published ones do: ``states`` float32 [B, 4], hand and gripper, and
    ``main_images`` uint8 [B, H, W, 3].

    Actions are 4 numbers in [-1, 1] (hand displacement, gripper). Object and goal positions are sampled anew at each
    reset from the reset-state id. An episode never terminates; success is recorded. Without ``reward_shaping`` success
    is the reward, and terminates.

    With ``task_name: mt10`` or ``mt50`` group ``g`` of the environments has the task ``g % T`` of the benchmark's
    ``T``, and keeps it; without images a one-hot of the task is appended to ``states``, which are then [B, 39 + T].
    So it is with ``ml10`` and ``ml45`` and the tasks of ``task_split``, without a one-hot, and ``states`` have zeros
    where the goal is. With ``num_goals`` a reset-state id names one of that number of start states of each task: ids in
    order go through all tasks' first ones, then the second ones. With ``task_per_episode`` the ids of one environment
    name all of the tasks.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: The task is unknown, or the environments cannot be shared out evenly among a benchmark's tasks.
        MissingPackageError: Meta-World is not installed.
    """
