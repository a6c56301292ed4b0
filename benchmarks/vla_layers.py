"""Seconds of one layer of each stack of a published policy at its full size, and what the whole model makes of it."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from benchmarks.vla_sizes import Stack, full_policy, stacks_of

REPEATS = 2
"""Passes that are measured in a turn, after one to warm up."""


def layers(kind: str, device: torch.device) -> dict[str, float]:
    """Time one layer of each kind at its full size, in a chunk of a rollout and in an update.

    A chunk has all passes of a layer: those over every image, token by token, and over every step of a flow. An update
    evaluates the chunk once, a flow at one noisy step.
    """
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with device:
        policy = full_policy(kind, 1)
    with torch.device("meta"):
        depths = {name: len(stack.layers) for name, stack in stacks_of(kind, full_policy(kind, None)).items()}
    policy = policy.to(dtype).eval()
    stacks = stacks_of(kind, policy)
    generator = torch.Generator(device).manual_seed(0)
    spent: dict[str, float] = defaultdict(float)
    with timed(stacks, spent, device):
        _, output = policy.predict_action_batch({}, mode="train", generator=generator)
        spent.clear()
        for _ in range(REPEATS):
            policy.predict_action_batch({}, mode="train", generator=generator)
    chunks = {name: spent[name] / REPEATS / len(stack.layers) for name, stack in stacks.items()}
    updates = layer_updates(stacks, lambda: policy.default_forward(output.forward_inputs), device)
    sizes = {
        name: sum(p.numel() for layer in stack.layers for p in layer.parameters()) / len(stack.layers)
        for name, stack in stacks.items()
    }
    report = {f"{name}_layer_chunk_milliseconds": 1e3 * value for name, value in chunks.items()}
    report |= {f"{name}_layer_update_milliseconds": 1e3 * value for name, value in updates.items()}
    report |= {f"{name}_layer_parameters": value for name, value in sizes.items()}
    report |= {f"{name}_layers": float(depth) for name, depth in depths.items()}
    return report | {
        "chunk_seconds_of_all_layers": sum(chunks[name] * depth for name, depth in depths.items()),
        "update_seconds_of_all_layers": sum(updates[name] * depth for name, depth in depths.items()),
    }


def layer_updates(stacks: Mapping[str, Stack], evaluate: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Return the seconds of a forward and a backward pass of a stack's layer, by name, on all that a pass gives it.

    Images come one after the other. Of layers of several kinds it is the mean.

    Args:
        stacks: Layers by name.
        evaluate: The forward pass of an update.
        device: Where it runs.
    """
    given: dict[nn.Module, tuple[Any, Any]] = {}
    calls: Counter[nn.Module] = Counter()
    measured = {name: stack.layers[-stack.kinds :] for name, stack in stacks.items()}

    def keep(layer: nn.Module, args: Any, keywords: Any) -> None:
        given[layer] = tree_map(_as_leaf, (args, keywords))
        calls[layer] += 1

    chosen = [layer for found in measured.values() for layer in found]
    handles = [layer.register_forward_pre_hook(keep, with_kwargs=True) for layer in chosen]
    evaluate()
    for handle in handles:
        handle.remove()

    def update(layer: nn.Module) -> None:
        args, keywords = given[layer]
        outputs = tree_leaves(layer(*args, **keywords))
        torch.stack([x.float().sum() for x in outputs if torch.is_tensor(x) and x.requires_grad]).sum().backward()

    spent = {
        layer: calls[layer] * seconds(lambda layer=layer: update(layer), device, repeats=REPEATS) for layer in chosen
    }
    return {name: statistics.mean(spent[layer] for layer in found) for name, found in measured.items()}


def _as_leaf(value: Any) -> Any:
    """Return a tensor as it is given, without what has made it."""
    return value.detach().requires_grad_(value.requires_grad) if torch.is_tensor(value) else value


@contextmanager
def timed(stacks: Mapping[str, Stack], spent: dict[str, float], device: torch.device) -> Iterator[None]:
    """Add up the seconds of the stacks' layers while the block runs.

    Args:
        stacks: Layers by name.
        spent: Seconds by name; changed.
        device: Where they run.

    Yields:
        Nothing.
    """
    begins: dict[str, float] = {}

    def begin(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            begins[name] = now(device)

        return hook

    def end(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            spent[name] += now(device) - begins[name]

        return hook

    handles = []
    for name, stack in stacks.items():
        for layer in stack.layers:
            handles += [layer.register_forward_pre_hook(begin(name)), layer.register_forward_hook(end(name))]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def now(device: torch.device) -> float:
    """Return seconds: by the clock once a GPU has done its work, or those that this process had of processors."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def seconds(call: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Return the median seconds of a call, after one to warm up."""
    call()
    times = []
    for _ in range(repeats):
        started = now(device)
        call()
        times.append(now(device) - started)
    return statistics.median(times)
