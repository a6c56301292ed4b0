"""What an evaluation of CALVIN is summed up to: tasks solved in a row, over the published chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlinf.config.schema.env import CalvinEnvConfig
from rlinf.envs.reset_states import ResetStates
from rlinf.envs.simulators.calvin_env import calvin_chains
from rlinf.telemetry.evaluation import EvalEpisode, success_interval

SETTINGS: tuple[str, ...] = (
    "scene",
    "chain_length",
    "first_tasks",
    "cameras",
    "image_size",
    "wrist_image_size",
    "max_episode_steps",
)
"""Keys of the environment that results depend on."""


def summarize_chains(env: CalvinEnvConfig, episodes: Sequence[EvalEpisode]) -> dict[str, Any]:
    """Return how long chains went on, how often each task was solved, and how many chains were played.

    Args:
        env: The section of the evaluation.
        episodes: All of them; the return of each is the number of its tasks that were solved in a row.
    """
    lengths = [round(episode.metrics["return"] / env.reward_coef) for episode in episodes]
    played = [_chain_id(env, episode) for episode in episodes]
    chains = calvin_chains(env)
    solved, tried = Counter[str](), Counter[str]()
    for number, length in zip(played, lengths, strict=True):
        tasks = chains[number % len(chains)][1][: env.chain_length]
        solved.update(tasks[:length])
        tried.update(tasks[: length + 1])
    distinct = {number % len(chains) for number in played}
    return {
        "all": _success(sum(length == env.chain_length for length in lengths), len(lengths)),
        "mean_length": round(float(np.mean(lengths)), 4),
        "in_a_row": {
            str(count): _success(sum(length >= count for length in lengths), len(lengths))
            for count in range(1, env.chain_length + 1)
        },
        "tasks": {task: _success(solved[task], tried[task]) for task in sorted(tried)},
        "starts": {"played": len(played), "distinct": len(distinct), "of": len(chains)},
    }


def _chain_id(env: CalvinEnvConfig, episode: EvalEpisode) -> int:
    states = ResetStates(env, num_envs=env.total_num_envs, first_env=0)
    return int(states.ids(episode.epoch, np.full(env.total_num_envs, episode.number))[episode.env])


def _success(successes: int, episodes: int) -> dict[str, Any]:
    low, high = success_interval(successes, episodes)
    return {
        "episodes": episodes,
        "successes": successes,
        "success": round(successes / episodes, 4),
        "interval": [round(low, 4), round(high, 4)],
    }
