"""From the episodes of a group to the responses that rewards score and the actor trains on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlinf.agents.episode import Episode
from rlinf.agents.recorder import Trajectory, Turn
from rlinf.data.messages.responses import Prompt, Response, ResponseBatch, ResponseGroup, lay_routes


def make_group(prompt: Prompt, group_id: int, episodes: Sequence[Episode], tokenizer: Any) -> ResponseGroup:
    """Return episodes as a group of responses.

    Args:
        prompt: The row that they played.
        group_id: Number of the prompt within the run.
        episodes: One at least.
        tokenizer: Decodes their last turns, which are the texts that rewards read.

    Returns:
        A response for each episode; every branch of an episode is a training sequence.
    """
    trajectories = [each for episode in episodes for each in episode.trajectories]
    batch = ResponseBatch(
        responses=tuple(_response(episode, group_id, index) for index, episode in enumerate(episodes)),
        prompt_ids=tuple(_prompt_ids(each, prompt) for each in trajectories),
        token_ids=_lay([each.token_ids for each in trajectories]),
        logprobs=_lay([each.logprobs for each in trajectories]),
        versions=_lay([each.versions for each in trajectories]),
        loss_mask=_lay([each.loss_mask for each in trajectories]),
        images=(prompt.images,) * len(trajectories) if prompt.images else (),
        routes=lay_routes(
            [each.routes for each in trajectories],
            [len(each.prompt_ids) + len(each.token_ids) for each in trajectories],
        ),
    )
    return ResponseGroup(
        prompt=prompt,
        texts=tuple(_last_text(episode, tokenizer) for episode in episodes),
        batch=batch,
        outcomes=tuple(episode.outcome for episode in episodes),
        transcripts=tuple(episode.transcript for episode in episodes),
    )


def _response(episode: Episode, group_id: int, index: int) -> Response:
    trajectories = episode.trajectories
    versions = np.concatenate([each.versions[each.loss_mask] for each in trajectories])
    lengths = [len(each.token_ids) for each in trajectories]
    has_branches = len(trajectories) > 1
    turns = sorted((turn for each in trajectories for turn in each.turns), key=lambda turn: turn.number)
    has_agents, has_rewards = any(turn.agent for turn in turns), any(turn.reward for turn in turns)
    return Response(
        group_id=group_id,
        index=index,
        num_tokens=sum(lengths),
        num_prompt_tokens=len(trajectories[0].prompt_ids),
        finish_reason=_last_turn(episode)[1].finish_reason if episode.status == "done" else "length",
        oldest_version=int(versions.min()),
        newest_version=int(versions.max()),
        episode_metrics=episode.metrics,
        branch_lengths=tuple(lengths) if has_branches else (),
        turn_spans=_turn_spans(trajectories) if has_branches or has_agents or has_rewards else (),
        turn_agents=tuple(turn.agent for turn in turns) if has_agents else (),
        turn_rewards=tuple(turn.reward for turn in turns) if has_rewards else (),
    )


def _turn_spans(trajectories: Sequence[Trajectory]) -> tuple[tuple[int, int], ...]:
    """Return where turns lie among the tokens of all branches, which lie end to end, by the turns' numbers."""
    begins = np.cumsum([0, *(len(each.token_ids) for each in trajectories)]).tolist()
    spans = {
        turn.number: (begin + turn.start, begin + turn.stop)
        for begin, each in zip(begins, trajectories, strict=False)
        for turn in each.turns
    }
    return tuple(spans[number] for number in sorted(spans))


def _last_turn(episode: Episode) -> tuple[Trajectory, Turn]:
    """Return the last turn of the agent that the row was given to, with its branch."""
    turns = ((each, turn) for each in episode.trajectories for turn in each.turns)
    return max(turns, key=lambda pair: (not pair[1].agent, pair[1].number))


def _prompt_ids(trajectory: Trajectory, prompt: Prompt) -> tuple[int, ...]:
    """Return the prompt's tokens; where they are the row's, as one object for the group."""
    token_ids = tuple(trajectory.prompt_ids.tolist())
    return prompt.token_ids if token_ids == prompt.token_ids else token_ids


def _last_text(episode: Episode, tokenizer: Any) -> str:
    trajectory, last = _last_turn(episode)
    token_ids = trajectory.token_ids[last.start : last.stop].tolist()
    return str(tokenizer.decode(token_ids, skip_special_tokens=True))


def _lay(columns: Sequence[np.ndarray[Any, Any]]) -> torch.Tensor:
    """Lay arrays end to end, [T]."""
    return torch.from_numpy(np.concatenate(columns))
