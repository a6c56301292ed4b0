"""Finds what sequences of tokens begin with that earlier ones begin with, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from rlinf.data.prompt_images import Images

Tokens: TypeAlias = "Sequence[int] | torch.Tensor"
"""Token ids, [L]; of integers of any size."""
SharedPrefix: TypeAlias = tuple[int, int]
"""Number of an earlier sequence, and how many tokens a sequence begins with that this one does, too."""
IntArray: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

MIN_SHARED = 16
"""A part of a prompt that is shorter is computed anew: looking up where it lies costs about as much."""


def prefix_keys(prompts: Sequence[Sequence[int]], images: Sequence[Images]) -> Sequence[Sequence[int]]:
    """Return prompts as sequences of numbers which are equal only where the images are equal, too.

    Args:
        prompts: Token ids of each prompt; placeholders of all images are one token.
        images: Images of each prompt; empty where there are none.
    """
    numbers: dict[Images, int] = {(): 0}
    keys = [numbers.setdefault(tuple(each), len(numbers)) for each in images]
    if not any(keys):
        return prompts
    return [[token + (key << 32) for token in prompt] for prompt, key in zip(prompts, keys, strict=True)]


def find_shared_prefixes(prompts: Sequence[Sequence[int]], responses: Sequence[Tokens]) -> list[SharedPrefix]:
    """Return what each prompt begins with that an earlier sequence, a prompt with its response, begins with too.

    A response is never shared, even if another one is equal: each is sampled, and trained on, by itself.

    Args:
        prompts: Token ids of each sequence's prompt.
        responses: Token ids of the response to each.

    Returns:
        For each sequence the number of the first one that begins so, and the number of tokens, which is 0 below
        ``MIN_SHARED`` unless it is the whole prompt.
    """
    index = _PrefixIndex({len(prompt) for prompt in prompts if len(prompt) < MIN_SHARED})
    found: list[SharedPrefix] = []
    for number, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        source, count = index.longest(tuple(prompt))
        found.append((source, count) if count else (number, 0))
        index.add(tuple(prompt), response, number)
    return found


@dataclass(slots=True)
class _Bucket:
    """Sequences with the same first ``MIN_SHARED`` tokens; those that no prompt was compared with are not in the tree.

    Most prompts equal one before them, which needs no tree.
    """

    tree: _PrefixTree
    pending: list[tuple[tuple[int, ...], Tokens, int]] = field(default_factory=list)


class _PrefixIndex:
    """Earlier sequences by what they begin with.

    Args:
        short_lengths: Lengths of the prompts that are shorter than ``MIN_SHARED``.
    """

    def __init__(self, short_lengths: set[int]) -> None:
        self._short_lengths = sorted(short_lengths)
        # The first sequence that begins with a short prompt, or with a prompt that has been looked up.
        self._first: dict[tuple[int, ...], int] = {}
        self._buckets: dict[tuple[int, ...], _Bucket] = {}

    def longest(self, prompt: tuple[int, ...]) -> SharedPrefix:
        """Return the first sequence with the longest prefix in common with a prompt, and its length; 0 if too short."""
        source = self._first.get(prompt)
        if source is not None:
            return source, len(prompt)
        bucket = self._buckets.get(prompt[:MIN_SHARED])  # a shorter prompt has none
        if bucket is None:
            return 0, 0
        for each, response, number in bucket.pending:
            bucket.tree.add(np.concatenate([_array(each), _array(response)]), number)
        bucket.pending = []
        source, count = bucket.tree.longest(_array(prompt))
        if count == len(prompt):
            self._first[prompt] = source
        return source, count

    def add(self, prompt: tuple[int, ...], response: Tokens, number: int) -> None:
        """Add a sequence, whose prompt has been looked up."""
        first = prompt[:MIN_SHARED]
        if len(first) < MIN_SHARED:
            first += tuple(_array(response[: MIN_SHARED - len(first)]).tolist())
        for length in self._short_lengths:
            if length <= len(first):
                self._first.setdefault(first[:length], number)
        if len(first) == MIN_SHARED:
            if len(prompt) >= MIN_SHARED:
                self._first.setdefault(prompt, number)
            bucket = self._buckets.setdefault(first, _Bucket(_PrefixTree()))
            bucket.pending.append((prompt, response, number))


@dataclass(slots=True)
class _Edge:
    """Tokens that sequences of a tree have in common; ``number`` is that of the first of them."""

    tokens: IntArray
    number: int
    children: dict[int, _Edge] = field(default_factory=dict)


class _PrefixTree:
    """Sequences of tokens by their prefixes."""

    def __init__(self) -> None:
        self._root = _Edge(np.empty(0, dtype=np.int64), 0)

    def longest(self, tokens: IntArray) -> SharedPrefix:
        """Return the first sequence with the longest prefix in common with some tokens, and its length."""
        edge, _, count = self._descend(tokens)
        return edge.number, count

    def add(self, tokens: IntArray, number: int) -> None:
        """Add a sequence."""
        edge, within, count = self._descend(tokens)
        if count == len(tokens):
            return
        if within < len(edge.tokens):
            rest = _Edge(edge.tokens[within:], edge.number, edge.children)
            edge.tokens, edge.children = edge.tokens[:within], {int(rest.tokens[0]): rest}
        edge.children[int(tokens[count])] = _Edge(tokens[count:], number)

    def _descend(self, tokens: IntArray) -> tuple[_Edge, int, int]:
        """Return where some tokens leave the tree: the edge, the place within it, and that within the tokens."""
        edge, within, count = self._root, 0, 0
        while within == len(edge.tokens) and count < len(tokens) and int(tokens[count]) in edge.children:
            edge = edge.children[int(tokens[count])]
            size = min(len(edge.tokens), len(tokens) - count)
            differs = edge.tokens[:size] != tokens[count : count + size]
            within = int(differs.argmax()) if differs.any() else size
            count += within
        return edge, within, count


def _array(tokens: Tokens) -> IntArray:
    return np.asarray(tokens, dtype=np.int64)
