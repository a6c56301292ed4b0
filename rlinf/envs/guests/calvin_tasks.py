"""CALVIN's 34 tasks: their sentences, and the rules by which the published evaluation chains them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where this cannot be evaluated.
    Rule = tuple[dict[str, Any], dict[str, Any]]

_COLOURS = ("red", "blue", "pink")
_OTHERS = {"red": ("blue", "pink"), "blue": ("red", "pink"), "pink": ("red", "blue")}
_SIDES = ("right", "left")


def _colour_tasks() -> dict[str, str]:
    """Return the tasks that rotate, push and lift, in the published order, with their sentences."""
    turning = {
        f"rotate_{colour}_block_{side}": f"take the {colour} block and rotate it to the {side}"
        for colour in _COLOURS
        for side in _SIDES
    }
    pushing = {
        f"push_{colour}_block_{side}": f"go push the {colour} block {side}" for colour in _COLOURS for side in _SIDES
    }
    return {**turning, **pushing}


def _lift_tasks() -> dict[str, str]:
    found = {}
    for colour in _COLOURS:
        found[f"lift_{colour}_block_table"] = f"grasp and lift the {colour} block"
        found[f"lift_{colour}_block_slider"] = f"lift the {colour} block from the sliding cabinet"
        found[f"lift_{colour}_block_drawer"] = f"Take the {colour} block from the drawer"
    return found


SENTENCES: dict[str, str] = {
    **_colour_tasks(),
    "move_slider_left": "push the sliding door to the left side",
    "move_slider_right": "push the sliding door to the right side",
    "open_drawer": "pull the handle to open the drawer",
    "close_drawer": "push the handle to close the drawer",
    **_lift_tasks(),
    "place_in_slider": "store the grasped block in the sliding cabinet",
    "place_in_drawer": "store the grasped block in the drawer",
    "stack_block": "stack the grasped block",
    "unstack_block": "remove the stacked block",
    "turn_on_lightbulb": "use the switch to turn on the light bulb",
    "turn_off_lightbulb": "use the switch to turn off the light bulb",
    "turn_on_led": "press the button to turn on the led light",
    "turn_off_led": "press the button to turn off the led light",
    "push_into_drawer": "slide the block that it falls into the drawer",
}
"""By task: what the published evaluation says to the policy. Their order is that of the published chains."""
TASKS: tuple[str, ...] = tuple(SENTENCES)

_KINDS = {
    "move_slider": 2,
    "open_drawer": 3,
    "close_drawer": 3,
    "place_in": 7,
    "turn_o": 8,
    "push_into_drawer": 9,
    "stack_block": 10,
    "unstack_block": 11,
    "rotate": 1,
    "push": 1,
}
_LIFTS = {"table": 4, "slider": 5, "drawer": 6}


def _category(task: str) -> int:
    if task.startswith("lift_"):
        return _LIFTS[task.rsplit("_", 1)[1]]
    return next(number for kind, number in _KINDS.items() if task.startswith(kind))


CATEGORIES: dict[str, int] = {task: _category(task) for task in TASKS}
"""By task: a chain has at most one of each."""


def _free(condition: dict[str, Any], effect: dict[str, Any]) -> Rule:
    """Return a rule of a task that begins with an empty gripper."""
    return {**condition, "grasped": 0}, effect


def _held(colour: str, condition: dict[str, Any], effect: dict[str, Any]) -> Rule:
    """Return a rule of a task that begins with a block in the gripper, and lets go of it."""
    return {f"{colour}_block": "grasped", **condition, "grasped": 1}, {**effect, "grasped": 0}


def _lift(colour: str, condition: dict[str, Any]) -> Rule:
    return _free(condition, {f"{colour}_block": "grasped", "grasped": 1})


def _block_rules(colour: str) -> dict[str, list[Rule]]:
    block = f"{colour}_block"
    stays = [_free({block: "table"}, {block: "table"})]
    moves = {f"{verb}_{block}_{side}": stays for verb in ("rotate", "push") for side in _SIDES}
    return {
        **moves,
        f"lift_{block}_table": [_lift(colour, {block: "table"})],
        f"lift_{block}_slider": [
            _lift(colour, {block: "slider_left", "slider": "right"}),
            _lift(colour, {block: "slider_right", "slider": "left"}),
        ],
        f"lift_{block}_drawer": [_lift(colour, {block: "drawer", "drawer": "open"})],
    }


def _stacking_rules() -> dict[str, list[Rule]]:
    stacking, unstacking = [], []
    for top in _COLOURS:
        for bottom in _OTHERS[top]:
            stacked = {f"{top}_block": "stacked_top", f"{bottom}_block": "stacked_bottom"}
            stacking.append(_held(top, {f"{bottom}_block": "table"}, stacked))
            unstacking.append(_free(stacked, {f"{top}_block": "table", f"{bottom}_block": "table"}))
    return {"stack_block": stacking, "unstack_block": unstacking}


def _push_into_drawer(colour: str) -> Rule:
    in_slider = {f"{other}_block": ("slider_right", "slider_left") for other in _OTHERS[colour]}
    block = f"{colour}_block"
    return _free({block: "table", **in_slider, "drawer": "open"}, {block: "drawer", "grasped": 0})


def _rules() -> dict[str, list[Rule]]:
    switches = {
        f"turn_{word}_{light}": [_free({light: 1 - value}, {light: value})]
        for light in ("lightbulb", "led")
        for word, value in (("on", 1), ("off", 0))
    }
    return {
        **_block_rules("red"),
        **_block_rules("blue"),
        **_block_rules("pink"),
        **_stacking_rules(),
        **switches,
        "move_slider_left": [_free({"slider": "right"}, {"slider": "left"})],
        "move_slider_right": [_free({"slider": "left"}, {"slider": "right"})],
        "open_drawer": [_free({"drawer": "closed"}, {"drawer": "open"})],
        "close_drawer": [_free({"drawer": "open"}, {"drawer": "closed"})],
        "place_in_slider": [
            _held(colour, {"slider": side}, {f"{colour}_block": f"slider_{side}"})
            for colour in _COLOURS
            for side in _SIDES
        ],
        "place_in_drawer": [_held(colour, {"drawer": "open"}, {f"{colour}_block": "drawer"}) for colour in _COLOURS],
        "push_into_drawer": [_push_into_drawer(colour) for colour in _COLOURS],
    }


RULES: dict[str, list[Rule]] = _rules()
"""By task: conditions on symbols (a value, or a tuple of allowed ones), and the symbols that it changes."""
