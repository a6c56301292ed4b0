"""Memory of a chunk and of an update, counted, and for small policies next to what the process really takes.

Weights, gradients and moments are counted on device ``meta``. What a forward pass keeps for its backward pass is
measured at the model's full size with few layers of each stack, and a further layer keeps as much as the last one.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from benchmarks.vla_sizes import (
    FLOWS,
    LANGUAGE,
    Stack,
    freeze_prefix,
    full_policy,
    stacks_of,
    tiny_observations,
    tiny_policy,
)

HALF = 2
"""Bytes of a number of the rollout's weights, bf16."""
BATCH = 64
"""Chunks of a small policy's update."""
_MMAP_THRESHOLD = -3
"""Number of ``M_MMAP_THRESHOLD`` in glibc."""
RECORDED = {"images.": "images", "token_": "tokens", "state": "state"}
"""What the names of recorded fields begin with; what remains is the choice: bins, or points of a flow."""


def memory(kind: str, device: torch.device) -> dict[str, float]:
    """Count the memory of one environment in a rollout and of one sample in an update, at the model's full size.

    Activations are those in bf16; ``recomputed`` is with gradient checkpointing of all layers, the one that is
    computed again included; ``expert_alone`` is what published RL of flows trains.
    """
    torch.manual_seed(0)
    with torch.device("meta"):
        whole = full_policy(kind, None)
    depths = {name: len(stack.layers) for name, stack in stacks_of(kind, whole).items()}
    with device:
        policy = full_policy(kind, 2)
    policy = policy.to(torch.bfloat16).eval()
    generator = torch.Generator(device).manual_seed(0)
    _, output = policy.predict_action_batch({}, mode="train", generator=generator)
    stacks = stacks_of(kind, policy)
    language = LANGUAGE[kind]
    cache = cache_bytes(policy, {}, num_layers=len(stacks[language].layers), depth=depths[language])
    size = sum(p.numel() for p in whole.parameters())
    report = {
        "parameters": float(size),
        "rollout_weights_megabytes": HALF * size / 1e6,
        "rollout_cache_megabytes": cache / 1e6,
        "update_weights_megabytes": sum(p.nbytes for p in whole.parameters()) / 1e6,
    }
    report |= {f"recorded_{name}_kilobytes": value / 1e3 for name, value in recorded_bytes(output).items()}
    report |= _update(policy, stacks, depths, output.forward_inputs) | trained_megabytes(whole)
    if kind in FLOWS:
        for each in (policy, whole):
            freeze_prefix(kind, each)
        alone = _update(policy, stacks, depths, output.forward_inputs) | trained_megabytes(whole)
        report |= {f"expert_alone_{name}": value for name, value in alone.items()}
    return report


def trained_megabytes(policy: nn.Module) -> dict[str, float]:
    """Return what gradients and Adam's two moments take, each of the weights' own type, of what is trained."""
    size = sum(p.nbytes for p in policy.parameters() if p.requires_grad) / 1e6
    return {"gradients_megabytes": size, "moments_megabytes": 2 * size}


def _update(
    policy: Any, stacks: Mapping[str, Stack], depths: Mapping[str, int], inputs: dict[str, torch.Tensor]
) -> dict[str, float]:
    """Return what a forward pass of an update keeps for its backward pass, without and with gradient checkpointing."""
    units, weights = policy.recompute_units(), [*policy.parameters(), *policy.buffers(), *inputs.values()]

    def evaluate() -> Any:
        return policy.default_forward(inputs)

    kept = saved_bytes(evaluate, units, weights)
    with recomputing(units):
        # Frozen layers that come first keep nothing, and so not what they are given.
        inputs_alone = saved_bytes(evaluate, [unit for unit in units if kept[unit]], weights, keeps_inputs=True)
    largest = max(kept[layer] for layer in units)
    return {
        "activations_megabytes": at_depth(kept, stacks, depths) / 1e6,
        "recomputed_activations_megabytes": (at_depth(inputs_alone, stacks, depths) + largest) / 1e6,
    }


Found = Counter["nn.Module | None"]
"""Bytes by layer; those of no layer by None."""


def saved_bytes(
    call: Callable[[], Any], units: Sequence[nn.Module], known: Iterable[torch.Tensor], *, keeps_inputs: bool = False
) -> Found:
    """Return the bytes that a forward pass keeps for its backward pass, each by the layer that is first to keep them.

    Args:
        call: The pass; returns what its graph hangs on.
        units: Layers.
        known: What is in memory anyway.
        keeps_inputs: Whether layers keep what they are given, as recomputed ones do.
    """
    seen = {tensor.untyped_storage().data_ptr() for tensor in known}
    found: Found = Counter()
    within: list[nn.Module | None] = [None]
    alive = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            # Held, so that no other storage gets its place.
            alive.append(storage)
            seen.add(storage.data_ptr())
            found[within[-1]] += storage.nbytes()
        return tensor

    def enter(unit: nn.Module, *given: Any) -> None:
        within.append(unit)
        if keeps_inputs:
            for value in tree_leaves(given):
                if torch.is_tensor(value):
                    keep(value)

    def leave(*_: Any) -> None:
        within.pop()

    handles = [unit.register_forward_pre_hook(enter, with_kwargs=True) for unit in units]
    handles += [unit.register_forward_hook(leave) for unit in units]
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        held = call()
    for handle in handles:
        handle.remove()
    del held
    return found


def at_depth(found: Found, stacks: Mapping[str, Stack], depths: Mapping[str, int]) -> float:
    """Return the bytes of all layers of the whole model, and of what is outside of them.

    The last layer of each kind says what a further one takes; the first ones may also have what all share.

    Args:
        found: Bytes of the layers that there are.
        stacks: These layers by name.
        depths: Layers of the whole model by name.
    """
    total = float(sum(found.values()))
    for name, stack in stacks.items():
        last = sum(found[layer] for layer in stack.layers[-stack.kinds :]) / stack.kinds
        total += (depths[name] - len(stack.layers)) * last
    return total


@contextmanager
def recomputing(units: Sequence[nn.Module]) -> Iterator[None]:
    """Compute layers again in the backward pass while the block runs, as ``gradient_checkpointing`` does.

    Yields:
        Nothing.
    """
    for unit in units:
        unit.forward = functools.partial(checkpoint, unit.forward, use_reentrant=False)
    try:
        yield
    finally:
        for unit in units:
            del unit.forward


def cache_bytes(policy: Any, obs: Any, *, num_layers: int, depth: int) -> float:
    """Return what a chunk keeps of an environment from pass to pass: keys and values, and a flow's view of the rest.

    Args:
        policy: At its full size, with few layers.
        obs: Of one environment.
        num_layers: Of its language model.
        depth: Of the whole model's language model.
    """
    if hasattr(policy, "prefix"):
        with torch.no_grad():
            prefix = policy.prefix(policy.inputs.record(obs, policy.device))
        keys_values, rest = tree_leaves(prefix.keys_values), prefix.output.nbytes
    else:
        given: list[Any] = []
        handle = policy.language_model.model.register_forward_pre_hook(
            lambda *call: given.append(call[-1].get("past_key_values")), with_kwargs=True
        )
        policy.predict_action_batch(obs, mode="eval")
        handle.remove()
        layers = [] if given[-1] is None else given[-1].layers
        keys_values, rest = [each for layer in layers for each in (layer.keys, layer.values)], 0
    return sum(each.nbytes for each in keys_values) / num_layers * depth + rest


def recorded_bytes(output: Any) -> dict[str, float]:
    """Return the host memory of what a rollout records of one chunk, by what it is."""
    found: Counter[str] = Counter()
    for name, tensor in output.forward_inputs.items():
        what = next((what for begin, what in RECORDED.items() if name.startswith(begin)), "choice")
        found[what] += tensor.nbytes // len(tensor)
    found["logprobs"] = output.logprobs.nbytes // len(output.logprobs)
    return {name: float(size) for name, size in found.items()}


def tiny_memory(kind: str, device: torch.device) -> dict[str, float]:
    """Compare what is counted of an update of a small policy with what the process takes, without recomputing and with.

    A first update makes what stays, so that the second one shows what it takes itself.
    """
    return_large_blocks()
    policy = tiny_policy(kind).to(device)
    _, output = policy.predict_action_batch(tiny_observations(1), mode="train", generator=torch.Generator(device))
    inputs = {name: tensor.repeat(BATCH, *[1] * (tensor.ndim - 1)) for name, tensor in output.forward_inputs.items()}
    units, weights = policy.recompute_units(), [*policy.parameters(), *policy.buffers(), *inputs.values()]

    def evaluate() -> torch.Tensor:
        evaluation = policy.default_forward(inputs)
        loss: torch.Tensor = evaluation.logprobs.sum() + evaluation.values.sum()
        return loss

    counted = trained_megabytes(policy)
    counted["activations_megabytes"] = sum(saved_bytes(evaluate, units, weights).values()) / 1e6
    update_megabytes(policy, evaluate, device)
    measured = update_megabytes(policy, evaluate, device)
    with recomputing(units):
        kept = saved_bytes(evaluate, units, weights, keeps_inputs=True)
        counted["checkpoints_megabytes"] = sum(kept.values()) / 1e6
        measured["checkpoints_megabytes"] = update_megabytes(policy, evaluate, device)["activations_megabytes"]
    report = {f"counted_{name}": value for name, value in counted.items()}
    report |= {f"measured_{name}": measured[name] for name in counted}
    ratios = {name.removesuffix("_megabytes"): counted[name] / measured[name] for name in counted}
    return report | {f"counted_over_measured_{name}": ratio for name, ratio in ratios.items()}


def update_megabytes(policy: nn.Module, evaluate: Callable[[], torch.Tensor], device: torch.device) -> dict[str, float]:
    """Return what an update takes: after its forward pass, of gradients after its backward pass, and of moments."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.0, foreach=False)
    marks = [taken_bytes(device)]
    loss = evaluate()
    marks.append(taken_bytes(device))
    loss.backward()
    del loss
    marks.append(taken_bytes(device))
    optimizer.step()
    marks.append(taken_bytes(device))
    policy.zero_grad()
    before, forward, backward, step = marks
    return {
        "activations_megabytes": (forward - before) / 1e6,
        "gradients_megabytes": (backward - before) / 1e6,
        "moments_megabytes": (step - backward) / 1e6,
    }


def return_large_blocks() -> None:
    """Have the C library give blocks from 32 kB on back when they are freed: a process then takes what it uses."""
    ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 15)


def taken_bytes(device: torch.device) -> int:
    """Return the memory that tensors take: of a GPU's allocator, or else the resident memory of the process."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
