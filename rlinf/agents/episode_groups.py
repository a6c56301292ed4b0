"""From the episodes of a group to the responses that rewards score and the actor trains on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlinf.agents.episode import Episode
from rlinf.agents.recorder import Trajectory
from rlinf.data.messages.responses import Prompt, Response, ResponseBatch, ResponseGroup
from rlinf.errors import AgentError


def make_group(prompt: Prompt, group_id: int, episodes: Sequence[Episode], tokenizer: Any) -> ResponseGroup:
    """Return episodes as a group of responses.

    Args:
        prompt: The row that they played.
        group_id: Number of the prompt within the run.
        episodes: One at least.
        tokenizer: Decodes their last turns, which are the texts that rewards read.

    Raises:
        AgentError: An episode has several trajectories, which cannot be trained on yet.
    """
    trajectories = [_only_trajectory(episode, prompt) for episode in episodes]
    numbered = enumerate(zip(trajectories, episodes, strict=True))
    batch = ResponseBatch(
        responses=tuple(_response(each, episode, group_id, index) for index, (each, episode) in numbered),
        prompt_ids=tuple(_prompt_ids(each, prompt) for each in trajectories),
        token_ids=_lay([each.token_ids for each in trajectories]),
        logprobs=_lay([each.logprobs for each in trajectories]),
        versions=_lay([each.versions for each in trajectories]),
        loss_mask=_lay([each.loss_mask for each in trajectories]),
    )
    return ResponseGroup(
        prompt=prompt,
        texts=tuple(_last_text(each, tokenizer) for each in trajectories),
        batch=batch,
        outcomes=tuple(episode.outcome for episode in episodes),
        transcripts=tuple(episode.transcript for episode in episodes),
    )


def _only_trajectory(episode: Episode, prompt: Prompt) -> Trajectory:
    if len(episode.trajectories) > 1:
        raise AgentError(
            f"Row {prompt.index}: an episode has {len(episode.trajectories)} branches, of which only one could be "
            "trained on. Let a workflow continue what it has sampled: one chat, or prompts that begin with all tokens "
            "of the turn before."
        )
    return episode.trajectories[0]


def _response(trajectory: Trajectory, episode: Episode, group_id: int, index: int) -> Response:
    versions = trajectory.versions[trajectory.loss_mask]
    return Response(
        group_id=group_id,
        index=index,
        num_tokens=len(trajectory.token_ids),
        num_prompt_tokens=len(trajectory.prompt_ids),
        finish_reason=trajectory.turns[-1].finish_reason if episode.status == "done" else "length",
        oldest_version=int(versions.min()),
        newest_version=int(versions.max()),
        episode_metrics=episode.metrics,
    )


def _prompt_ids(trajectory: Trajectory, prompt: Prompt) -> tuple[int, ...]:
    """Return the prompt's tokens; where they are the row's, as one object for the group."""
    token_ids = tuple(trajectory.prompt_ids.tolist())
    return prompt.token_ids if token_ids == prompt.token_ids else token_ids


def _last_text(trajectory: Trajectory, tokenizer: Any) -> str:
    last = trajectory.turns[-1]
    token_ids = trajectory.token_ids[last.start : last.stop].tolist()
    return str(tokenizer.decode(token_ids, skip_special_tokens=True))


def _lay(columns: Sequence[np.ndarray[Any, Any]]) -> torch.Tensor:
    """Lay arrays end to end, [T]."""
    return torch.from_numpy(np.concatenate(columns))
