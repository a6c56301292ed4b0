"""Faults of reading Megatron-LM's checkpoints: which tensor is whose, of which layer and expert."""

from __future__ import annotations

from tests.mutation.fault import Fault

_FILE = "rlinf/hybrid_engines/train/torch_dist.py"
_TESTS = ("tests/unit/hybrid_engines/train/test_torch_dist.py",)


def _fault(before: str, after: str, what: str) -> Fault:
    return Fault(_FILE, before, after, _TESTS, what)


FAULTS: list[Fault] = [
    _fault('if piece.offsets[1] == 0 else "up"', 'if piece.offsets[1] else "up"', "gate and up of experts are swapped"),
    _fault("(layer, *index)) for each in names]", "(0, *index)) for each in names]", "every layer is the first"),
    _fault("(int(expert.group(2)),)", "(0,)", "every expert is the first"),
    _fault("if found < num_rows:", "if False:", "a model of another size is accepted"),
    _fault(
        "functools.lru_cache(maxsize=2)(self._read)",
        "functools.lru_cache()(lambda _: self._read('embedding.weight'))",
        "all tensors are the embeddings",
    ),
    _fault(
        "all(at < size for at, size in zip(place, tensor.shape, strict=False))",
        "True",
        "a layer behind the last is read",
    ),
    _fault('if backend != "torch_dist":', "if False:", "another format of Megatron is read"),
    _fault('path /= f"iter_{int(name):07d}"', 'path /= "iter_0000001"', "an earlier checkpoint is taken"),
    _fault("if len(keys) != 1:", "if len(keys) > 1:", "a checkpoint without a language model is read"),
    Fault(
        "rlinf/cli/convert.py",
        "if of_megatron is not None and args.like is None:",
        "if False:",
        _TESTS,
        "a checkpoint without a configuration fails elsewhere",
    ),
]
