"""Sequences of tokens laid end to end: what a language model trains on, without padding, and what they share once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from rlinf.data.prompt_images import Images
from rlinf.data.shared_prefixes import IntArray, SharedPrefix, Tokens, find_shared_prefixes, prefix_keys
from rlinf.errors import AlgorithmError


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """``N`` sequences of ``T`` tokens in total, one behind the other; what some begin with may lie there once for all.

    Whatever is known per token lies next to ``token_ids`` as a tensor [T]: its entry i is about token i.

    Attributes:
        token_ids: int64 [T].
        position_ids: int64 [T]; position within the sequence, from 0.
        sequence_ids: int64 [T]; number of the sequence, from 0; of tokens that are shared, the first one's.
        previous: int64 [T]; where the token before lies, of the first of a sequence itself.
        lengths: Tokens of each sequence, those it shares among them, [N], on the host.
        shared: How many tokens each sequence begins with that lie in an earlier one, [N], on the host.
        places: int64 [sum(lengths)]; where the tokens of each sequence lie, one sequence behind another, on the host.
        images: Encoded images of each sequence, [N], on the host; empty where there are none.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    sequence_ids: torch.Tensor
    previous: torch.Tensor
    lengths: tuple[int, ...]
    shared: tuple[int, ...]
    places: torch.Tensor
    images: tuple[Images, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens in the pack: shared ones count once."""
        return len(self.token_ids)

    @property
    def num_sequences(self) -> int:
        """Sequences."""
        return len(self.lengths)

    @property
    def boundaries(self) -> list[int]:
        """Where each sequence begins in ``places``, and the end of the last: [N + 1]."""
        return [0, *itertools.accumulate(self.lengths)]

    def to(self, device: torch.device) -> PackedSequences:
        """Return the same on another device."""
        names = ("token_ids", "position_ids", "sequence_ids", "previous")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def pack_sequences(sequences: Sequence[Tokens]) -> PackedSequences:
    """Lay sequences end to end.

    Args:
        sequences: Token ids; each sequence has at least one.

    Returns:
        The packed sequences, on the host.

    Raises:
        AlgorithmError: No sequence, or an empty one.
    """
    return _pack([((), sequence) for sequence in sequences], [(0, 0)] * len(sequences))


def pack_responses(
    prompts: Iterable[tuple[int, ...]],
    responses: Iterable[Tokens],
    *,
    share_prompts: bool = False,
    images: Sequence[Images] = (),
) -> tuple[PackedSequences, torch.Tensor]:
    """Lay prompts, each with its response behind it, end to end.

    Args:
        prompts: Token ids of each prompt; at least one each, because the first token of a sequence has no probability.
        responses: Token ids of the response to each.
        share_prompts: Whether what prompts begin with lies in the pack once: whole prompts that are equal, and any part
            of ``MIN_SHARED`` tokens that an earlier prompt and its response begin with, as the contexts of the turns of
            an episode do. Under causal attention a token has the same hidden state in all sequences that share it, so
            gradients are exact. Prompts with other images share nothing.
        images: Images of each prompt; empty where there are none.

    Returns:
        The packed sequences, and bool [T]: which tokens belong to responses.

    Raises:
        AlgorithmError: Numbers that differ, or an empty prompt.
    """
    pairs = list(zip(prompts, responses, strict=True))
    if not all(prompt for prompt, _ in pairs):
        raise AlgorithmError("pack_responses: every prompt needs at least one token, a begin token for example.")
    shared = [(0, 0)] * len(pairs)
    if share_prompts:
        shared = find_shared_prefixes(
            prefix_keys([prompt for prompt, _ in pairs], images), [response for _, response in pairs]
        )
    packed = replace(_pack(pairs, shared), images=tuple(images))
    is_response = torch.zeros(packed.num_tokens, dtype=torch.bool)
    sizes = [size for prompt, rest in pairs for size in (len(prompt), len(rest))]
    of_responses = torch.tensor([False, True]).repeat(len(pairs)).repeat_interleave(torch.tensor(sizes))
    is_response[packed.places[of_responses]] = True
    return packed, is_response


def _pack(pairs: Sequence[tuple[Sequence[int], Tokens]], shared: Sequence[SharedPrefix]) -> PackedSequences:
    """Lay sequences end to end, given as prefix and rest, without what they share with earlier ones."""
    lengths = tuple(len(prefix) + len(rest) for prefix, rest in pairs)
    if not lengths or min(lengths) < 1:
        raise AlgorithmError(
            f"pack_sequences: needs sequences of at least one token each, received lengths {list(lengths)}."
        )
    pieces: list[IntArray] = []
    places: list[IntArray] = []
    own: list[int] = []
    end = 0
    for (prefix, rest), (source, count) in zip(pairs, shared, strict=True):
        pieces += [np.asarray(prefix[count:], dtype=np.int64), np.asarray(rest, dtype=np.int64)]
        own.append(len(prefix) + len(rest) - count)
        begins = np.arange(end, end + own[-1])
        places.append(np.concatenate([places[source][:count], begins]) if count else begins)
        end += own[-1]
    sizes = torch.tensor(lengths)
    where = torch.from_numpy(np.concatenate(places))
    positions = torch.arange(len(where)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    # Shared tokens are written several times, with the same value each time.
    position_ids = torch.empty(end, dtype=torch.int64).index_copy(0, where, positions)
    before = where.roll(1).where(positions > 0, where)
    return PackedSequences(
        token_ids=torch.from_numpy(np.concatenate(pieces)),
        position_ids=position_ids,
        sequence_ids=torch.arange(len(lengths)).repeat_interleave(torch.tensor(own)),
        previous=torch.empty_like(position_ids).index_copy(0, where, before),
        lengths=lengths,
        shared=tuple(length - count for length, count in zip(lengths, own, strict=True)),
        places=where,
    )


def place(values: Sequence[torch.Tensor], where: torch.Tensor) -> torch.Tensor:
    """Lay what is known of each response's tokens next to the packed tokens.

    Args:
        values: One tensor [L] per sequence, for its response's tokens.
        where: bool [T]; which tokens belong to responses.

    Returns:
        [T] of the values' type, 0 elsewhere.

    Raises:
        AlgorithmError: The numbers of values and of tokens differ.
    """
    joined = torch.cat(list(values))
    if len(joined) != int(where.sum()):
        raise AlgorithmError(f"place: received {len(joined)} values for {int(where.sum())} tokens of responses.")
    placed = torch.zeros(where.shape, dtype=joined.dtype)
    placed[where] = joined
    return placed
