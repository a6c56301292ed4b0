"""Which task and start state of LIBERO a reset-state id names; neither LIBERO nor torch is needed for it."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.config.schema.env import EnvConfig, LiberoEnvConfig, LiberoSuite
from rlinf.envs.reset_states import require_start_states
from rlinf.errors import ConfigError

NUM_TASKS: dict[LiberoSuite, int] = {
    "libero_spatial": 10,
    "libero_object": 10,
    "libero_goal": 10,
    "libero_10": 10,
    "libero_90": 90,
}
"""Tasks of each suite."""
NUM_TRIALS = 50
"""Published start states of each task."""


@dataclass(frozen=True)
class LiberoStarts:
    """Start states, by reset-state ids.

    Ids go through the tasks first: ``0 .. T - 1`` are the first start states of the ``T`` tasks, ``T .. 2 T - 1`` the
    second ones. Of ``N`` start states (``len``), ``id`` names the same as ``id + N``.

    Attributes:
        tasks: Numbers of the tasks, as the suite has them (``T``).
        trials: Numbers of each task's start states.
    """

    tasks: tuple[int, ...]
    trials: tuple[int, ...]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.tasks) * len(self.trials)

    def start(self, reset_state_id: int, own_task: int | None = None) -> tuple[int, int]:
        """Return (task, trial).

        Args:
            reset_state_id: At least 0.
            own_task: Place among ``tasks`` of the task; None lets the id name it.
        """
        trial, task = divmod(reset_state_id, len(self.tasks))
        return self.tasks[task if own_task is None else own_task], self.trials[trial % len(self.trials)]

    def own_task(self, group: int, num_groups: int) -> int | None:
        """Return the place among ``tasks`` of the task that a group of environments keeps.

        Building a task's scene takes seconds. Where groups can be shared out evenly among the tasks, each keeps one:
        ordered ids name the same start states then, and sampled ones sample start states of that task.

        Args:
            group: Number of the group.
            num_groups: Groups over all environments.

        Returns:
            None where groups change their task from episode to episode.
        """
        return group % len(self.tasks) if num_groups % len(self.tasks) == 0 else None


def libero_starts(cfg: LiberoEnvConfig) -> LiberoStarts:
    """Return the start states that a section names.

    Raises:
        ConfigError: A filter is empty, has a number twice, or one that does not exist.
    """
    tasks = _chosen("task_id_filter", cfg.task_id_filter, NUM_TASKS[cfg.task_suite_name], cfg.task_suite_name)
    return LiberoStarts(tasks, _chosen("trial_id_filter", cfg.trial_id_filter, NUM_TRIALS, "each task"))


def check_libero(cfg: EnvConfig) -> None:
    """Check the filters of a section; see ``EnvConfig.readiness_check``.

    Raises:
        ConfigError: As ``libero_starts``; ``num_start_states`` is more than there are; or ``show_objects`` is set for
            another suite than ``libero_object``.
    """
    assert isinstance(cfg, LiberoEnvConfig)
    require_start_states(cfg, len(libero_starts(cfg)))
    if cfg.show_objects and cfg.task_suite_name != "libero_object":
        raise ConfigError(
            f"env.*.show_objects: received true; {cfg.task_suite_name} does not always have one object to move and one "
            "basket. Set it to false, or task_suite_name to libero_object."
        )


def _chosen(key: str, numbers: list[int] | None, count: int, owner: str) -> tuple[int, ...]:
    if numbers is None:
        return tuple(range(count))
    if not numbers or len(set(numbers)) < len(numbers) or max(numbers) >= count:
        raise ConfigError(f"env.*.{key}: received {numbers}; {owner} has the numbers 0 to {count - 1}, each once.")
    return tuple(numbers)
