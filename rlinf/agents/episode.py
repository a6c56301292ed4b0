"""Plays an episode to its end, however it ends."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimitError
from rlinf.agents.recorder import Trajectory
from rlinf.agents.template import Message
from rlinf.agents.workflow import RolloutWorkflow
from rlinf.errors import AgentError

EpisodeStatus = Literal["done", "length", "timeout"]
"""``done``: the workflow returned; ``length``: turns or context were used up; ``timeout``: its time was."""


_CANCEL_SECONDS = 5.0
"""For a workflow to end its tools after it was cancelled; one that does not is left to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What a workflow has played.

    Attributes:
        trajectories: The training samples; one at least.
        status: How it ended.
        outcome: The workflow's own judgement; None without one.
        transcript: What was said, of the first chat; empty without one.
        metrics: What was counted, by name: means over episodes become metrics of the run.
    """

    trajectories: tuple[Trajectory, ...]
    status: EpisodeStatus
    outcome: float | None
    transcript: tuple[Message, ...]
    metrics: Mapping[str, float]


async def play_episode(workflow: RolloutWorkflow, engine: EpisodeEngine, *, timeout_seconds: float | None) -> Episode:
    """Play one episode.

    Limits and time that are used up are the model's own faults, as a rule: the episode is rewarded as it stands.

    Args:
        workflow: How.
        engine: Of the episode.
        timeout_seconds: Time that it may take; None is any.

    Raises:
        AgentError: Nothing was sampled.
        Exception: The workflow raised it.
    """
    status: EpisodeStatus = "done"
    outcome: float | None = None
    begin = time.monotonic()
    task = asyncio.ensure_future(workflow.arun_episode(engine, engine.prompt))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_seconds)
        if done:
            outcome = task.result()
        else:
            status = "timeout"
    except EpisodeLimitError:
        status = "length"
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_SECONDS)
    trajectories = engine.recorder.trajectories()
    if not trajectories:
        raise AgentError(
            f"Row {engine.prompt.index}: the episode ended ({status}) before a token was sampled. Raise "
            "agent.max_context_tokens or agent.timeout_seconds, or shorten the prompt."
        )
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    own = sum(int(trajectory.loss_mask.sum()) for trajectory in trajectories)
    turn_rewards = [turn.reward for turn in turns if turn.reward]
    metrics = {
        "turns": float(len(turns)),
        "branches": float(len(trajectories)),
        "own_tokens": float(own),
        "context_tokens": float(sum(len(trajectory.token_ids) for trajectory in trajectories) - own),
        "episode_seconds": time.monotonic() - begin,
        "episode_timeouts": float(status == "timeout"),
        "episode_limits": float(status == "length"),
        "forks": float(sum(engine.recorder.forks().values())),
        **({"turn_reward": math.fsum(turn_rewards)} if turn_rewards else {}),
        **engine.counts,
    }
    transcript = tuple(engine.chats[0].messages) if engine.chats else ()
    return Episode(trajectories=trajectories, status=status, outcome=outcome, transcript=transcript, metrics=metrics)
