"""When and how a ManiSkill task is looked at: images only where they are looked at; imports no ManiSkill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rlinf.envs.raw_chunk import IntArray


def look_late(env: Any) -> None:
    """Have resets and steps of a task with cameras render nothing: what they return has ``agent``, ``extra``, ``info``.

    ManiSkill renders in each step, though a policy looks once in a chunk.

    Args:
        env: ManiSkill's environment; its ``get_obs`` is replaced.
    """

    def get_obs(info: dict[str, Any] | None = None, unflattened: bool = False) -> dict[str, Any]:
        del unflattened
        known = env.get_info() if info is None else info
        return {"agent": env._get_obs_agent(), "extra": env._get_obs_extra(known), "info": known}

    env.get_obs = get_obs


def whole_state(env: Any, info: dict[str, Any]) -> Any:
    """Return what the task shows with ``obs_mode: state_dict``, poses of objects too: nested tensors [B, ...].

    Args:
        env: ManiSkill's environment, built with another mode.
        info: That of its last reset or step; to have it computed again may change the task's books.
    """
    mode, structure = env._obs_mode, env.obs_mode_struct
    # Tasks ask these two what to show.
    env._obs_mode, env.obs_mode_struct = "state_dict", replace(structure, state_dict=True)
    try:
        return env._get_obs_state_dict(info)
    finally:
        env._obs_mode, env.obs_mode_struct = mode, structure


@contextmanager
def untouched(env: Any, rows: IntArray) -> Iterator[None]:
    """Begin episodes in which nothing touches anything yet.

    PhysX reports the contacts of its last step, which was the end of the episode before: a task would show that the
    gripper holds the object.

    Args:
        env: ManiSkill's environment.
        rows: int64 [F]; those that begin. The contacts of the others are shown as they are.
    """
    scene = env.scene
    impulses = scene.get_pairwise_contact_impulses

    def of_others(*bodies: Any) -> Any:
        found = impulses(*bodies).clone()
        found[rows] = 0
        return found

    scene.get_pairwise_contact_impulses = of_others
    try:
        yield
    finally:
        # The class's own again. A task that builds its scene anew has another one by now.
        del scene.get_pairwise_contact_impulses
