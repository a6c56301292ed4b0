"""What an evaluation of CALVIN is summed up to: tasks solved in a row, over the published chains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlinf.config.schema.env import CalvinEnvConfig
from rlinf.envs.simulators.calvin_env import calvin_chains
from rlinf.telemetry.evaluation import EvalEpisode, success_interval


def summarize_chains(env: CalvinEnvConfig, episodes: Sequence[EvalEpisode]) -> dict[str, Any]:
    """Return how long chains went on, and how often each task was solved.

    Args:
        env: The section of the evaluation.
        episodes: All of them; the return of each is the number of its tasks that were solved in a row.
    """
    lengths = [round(episode.metrics["return"] / env.reward_coef) for episode in episodes]
    chains = calvin_chains(env)
    solved, tried = Counter[str](), Counter[str]()
    for episode, length in zip(episodes, lengths, strict=True):
        assert episode.start is not None
        tasks = chains[episode.start % len(chains)][1][: env.chain_length]
        solved.update(tasks[:length])
        tried.update(tasks[: length + 1])
    return {
        "all": _success(sum(length == env.chain_length for length in lengths), len(lengths)),
        "mean_length": round(float(np.mean(lengths)), 4),
        "in_a_row": {
            str(count): _success(sum(length >= count for length in lengths), len(lengths))
            for count in range(1, env.chain_length + 1)
        },
        "tasks": {task: _success(solved[task], tried[task]) for task in sorted(tried)},
    }


def _success(successes: int, episodes: int) -> dict[str, Any]:
    low, high = success_interval(successes, episodes)
    return {
        "episodes": episodes,
        "successes": successes,
        "success": round(successes / episodes, 4),
        "interval": [round(low, 4), round(high, 4)],
    }
