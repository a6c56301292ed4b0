"""Meta-World's tasks in words, by name, and the benchmarks that they make up."""

from __future__ import annotations

from rlinf.config.schema.env import MetaWorldEnvConfig
from rlinf.envs.reset_states import require_start_states
from rlinf.errors import ConfigError
from rlinf.registry import did_you_mean

TASK_DESCRIPTIONS: dict[str, str] = {
    "assembly-v3": "Pick up the nut and place it onto the peg.",
    "basketball-v3": "Dunk the basketball into the hoop.",
    "bin-picking-v3": "Pick up the object from one bin and place it into the other bin.",
    "box-close-v3": "Pick up the lid and close the box with it.",
    "button-press-topdown-v3": "Press the button from the top.",
    "button-press-topdown-wall-v3": "Reach over the wall and press the button from the top.",
    "button-press-v3": "Press the button.",
    "button-press-wall-v3": "Reach around the wall and press the button.",
    "coffee-button-v3": "Press the button of the coffee machine.",
    "coffee-pull-v3": "Pull the mug away from the coffee machine.",
    "coffee-push-v3": "Push the mug under the coffee machine.",
    "dial-turn-v3": "Turn the dial.",
    "disassemble-v3": "Lift the nut off the peg.",
    "door-close-v3": "Close the door.",
    "door-lock-v3": "Lock the door by turning the lock clockwise.",
    "door-open-v3": "Open the door.",
    "door-unlock-v3": "Unlock the door by turning the lock counter-clockwise.",
    "hand-insert-v3": "Insert the gripper into the hole.",
    "drawer-close-v3": "Push the drawer closed.",
    "drawer-open-v3": "Pull the drawer open.",
    "faucet-open-v3": "Turn the faucet handle counter-clockwise to open it.",
    "faucet-close-v3": "Turn the faucet handle clockwise to close it.",
    "hammer-v3": "Pick up the hammer and drive the nail into the wall.",
    "handle-press-side-v3": "Press the handle down sideways.",
    "handle-press-v3": "Press the handle down.",
    "handle-pull-side-v3": "Pull the handle up sideways.",
    "handle-pull-v3": "Pull the handle up.",
    "lever-pull-v3": "Pull the lever up by 90 degrees.",
    "pick-place-wall-v3": "Pick up the object, carry it over the wall and place it at the goal.",
    "pick-out-of-hole-v3": "Pick the object up out of the hole.",
    "pick-place-v3": "Pick up the object and place it at the goal.",
    "plate-slide-v3": "Slide the plate into the goal.",
    "plate-slide-side-v3": "Slide the plate into the goal sideways.",
    "plate-slide-back-v3": "Slide the plate back out of the goal.",
    "plate-slide-back-side-v3": "Slide the plate out of the goal sideways.",
    "peg-insert-side-v3": "Insert the peg sideways into the hole.",
    "peg-unplug-side-v3": "Unplug the peg sideways.",
    "soccer-v3": "Kick the ball into the goal.",
    "stick-push-v3": "Grasp the stick and push the container with it.",
    "stick-pull-v3": "Grasp the stick and pull the container with it.",
    "push-v3": "Push the object to the goal.",
    "push-wall-v3": "Push the object around the wall to the goal.",
    "push-back-v3": "Pull the object back to the goal.",
    "reach-v3": "Move the gripper to the goal position.",
    "reach-wall-v3": "Move the gripper around the wall to the goal position.",
    "shelf-place-v3": "Pick up the object and place it onto the shelf.",
    "sweep-into-v3": "Sweep the object into the hole.",
    "sweep-v3": "Sweep the object off the table.",
    "window-open-v3": "Push the window open.",
    "window-close-v3": "Push the window closed.",
}
"""In the order of Meta-World's MT50."""

PAPER_SENTENCES: dict[str, str] = {
    "assembly-v3": "Pick up a nut and place it onto a peg",
    "basketball-v3": "Dunk the basketball into the basket",
    "bin-picking-v3": "Grasp the puck from one bin and place it into another bin",
    "box-close-v3": "Grasp the cover and close the box with it",
    "button-press-topdown-v3": "Press a button from the top",
    "button-press-topdown-wall-v3": "Bypass a wall and press a button from the top",
    "button-press-v3": "Press a button",
    "button-press-wall-v3": "Bypass a wall and press a button",
    "coffee-button-v3": "Push a button on the coffee machine",
    "coffee-pull-v3": "Pull a mug from a coffee machine",
    "coffee-push-v3": "Push a mug under a coffee machine",
    "dial-turn-v3": "Rotate a dial 180 degrees",
    "disassemble-v3": "Pick a nut out of a peg",
    "door-close-v3": "Close a door with a revolving joint",
    "door-lock-v3": "Lock the door by rotating the lock clockwise",
    "door-open-v3": "Open a door with a revolving joint",
    "door-unlock-v3": "Unlock the door by rotating the lock counter-clockwise",
    "hand-insert-v3": "Insert the gripper into a hole",
    "drawer-close-v3": "Push and close a drawer",
    "drawer-open-v3": "Open a drawer",
    "faucet-open-v3": "Rotate the faucet counter-clockwise",
    "faucet-close-v3": "Rotate the faucet clockwise",
    "hammer-v3": "Hammer a screw on the wall",
    "handle-press-side-v3": "Press a handle down sideways",
    "handle-press-v3": "Press a handle down",
    "handle-pull-side-v3": "Pull a handle up sideways",
    "handle-pull-v3": "Pull a handle up",
    "lever-pull-v3": "Pull a lever down 90 degrees",
    "pick-place-wall-v3": "Pick a puck, bypass a wall and place the puck",
    "pick-out-of-hole-v3": "Pick up a puck from a hole",
    "pick-place-v3": "Pick and place a puck to a goal",
    "plate-slide-v3": "Slide a plate into a cabinet",
    "plate-slide-side-v3": "Slide a plate into a cabinet sideways",
    "plate-slide-back-v3": "Get a plate from the cabinet",
    "plate-slide-back-side-v3": "Get a plate from the cabinet sideways",
    "peg-insert-side-v3": "Insert a peg sideways",
    "peg-unplug-side-v3": "Unplug a peg sideways",
    "soccer-v3": "Kick a soccer into the goal",
    "stick-push-v3": "Grasp a stick and push a box using the stick",
    "stick-pull-v3": "Grasp a stick and pull a box with the stick",
    "push-v3": "Push the puck to a goal",
    "push-wall-v3": "Bypass a wall and push a puck to a goal",
    "push-back-v3": "Push the puck to a goal",
    "reach-v3": "Reach a goal position",
    "reach-wall-v3": "Bypass a wall and reach a goal",
    "shelf-place-v3": "Pick and place a puck onto a shelf",
    "sweep-into-v3": "Sweep a puck into a hole",
    "sweep-v3": "Sweep a puck off the table",
    "window-open-v3": "Push and open a window",
    "window-close-v3": "Push and close a window",
}
"""As the paper says them (arXiv 1910.10897), and data sets with it; two tasks have the same sentence."""

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "mt3": ("button-press-topdown-v3", "door-close-v3", "drawer-close-v3"),
    "mt10": (
        "reach-v3",
        "push-v3",
        "pick-place-v3",
        "door-open-v3",
        "drawer-open-v3",
        "drawer-close-v3",
        "button-press-topdown-v3",
        "peg-insert-side-v3",
        "window-open-v3",
        "window-close-v3",
    ),
    "mt50": tuple(TASK_DESCRIPTIONS),
}
"""Tasks of each multi-task benchmark, in the order of the one-hot part of the observation; ``mt3`` is not Meta-World's
own."""
_ML45_TEST = ("bin-picking-v3", "box-close-v3", "hand-insert-v3", "door-lock-v3", "door-unlock-v3")
SPLITS: dict[str, dict[str, tuple[str, ...]]] = {
    "ml10": {
        "train": (
            "reach-v3",
            "push-v3",
            "pick-place-v3",
            "door-open-v3",
            "drawer-close-v3",
            "button-press-topdown-v3",
            "peg-insert-side-v3",
            "window-open-v3",
            "sweep-v3",
            "basketball-v3",
        ),
        "test": ("drawer-open-v3", "door-close-v3", "shelf-place-v3", "sweep-into-v3", "lever-pull-v3"),
    },
    "ml45": {"train": tuple(name for name in TASK_DESCRIPTIONS if name not in _ML45_TEST), "test": _ML45_TEST},
}
"""Tasks of each benchmark that asks how a policy does tasks that training does not have, by ``task_split``. States do
not show the goal there, and no one-hot names the task."""


def tasks_of(cfg: MetaWorldEnvConfig) -> tuple[str, ...]:
    """Return the names of the tasks that ``cfg.task_name`` stands for.

    Raises:
        ConfigError: There is no such task, it has no such split, the groups are not a multiple of a benchmark's tasks,
            or ``num_start_states`` is more than there are.
    """
    tasks = _named_tasks(cfg)
    share = len(tasks) * cfg.group_size
    if cfg.total_num_envs % share and len(tasks) > 1 and not cfg.task_per_episode:
        raise ConfigError(
            f"env.*.total_num_envs={cfg.total_num_envs} does not share out evenly among the {len(tasks)} tasks of "
            f"task_name={cfg.task_name} in groups of {cfg.group_size}; set it to a multiple of {share}, or "
            "task_per_episode to true."
        )
    if cfg.num_goals is not None:
        require_start_states(cfg, len(tasks) * cfg.num_goals)
    return tasks


def _named_tasks(cfg: MetaWorldEnvConfig) -> tuple[str, ...]:
    if cfg.task_name in SPLITS:
        return SPLITS[cfg.task_name][cfg.task_split]
    if cfg.task_split != "train":
        raise ConfigError(
            f"env.*.task_split: received {cfg.task_split}; task_name={cfg.task_name} has no splits. Remove it, or set "
            f"task_name to one of {', '.join(SPLITS)}."
        )
    if cfg.task_name in TASK_DESCRIPTIONS:
        return (cfg.task_name,)
    if cfg.task_name not in BENCHMARKS:
        names = [*BENCHMARKS, *SPLITS, *sorted(TASK_DESCRIPTIONS)]
        raise ConfigError(
            f"env.*.task_name: Meta-World has no task '{cfg.task_name}'.{did_you_mean(cfg.task_name, names)} "
            f"Its benchmarks and tasks: {', '.join(names)}."
        )
    return BENCHMARKS[cfg.task_name]
