"""Low-rank adapters (Hu et al., arXiv 2106.09685) in the linear layers of a model, through ``peft``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.vla import VLAConfig
from rlinf.errors import ConfigError
from rlinf.utils.optional import require
from rlinf.utils.seeding import derive_seed

ADAPTER = "default"
_BASE, _A, _B = "base_layer", f"lora_A.{ADAPTER}.weight", f"lora_B.{ADAPTER}.weight"


def add_adapters(model: nn.Module, cfg: LoRAKeys, *, whole: Sequence[str] = ()) -> None:
    """Put adapters into a model's linear layers, in place, and freeze everything else.

    Args:
        model: Keeps its module names; an adapted layer's weight moves to ``<layer>.base_layer``.
        cfg: ``lora_rank``, ``lora_alpha`` and ``lora_target_modules``.
        whole: Modules that get no adapters, see ``is_within``.

    Raises:
        MissingPackageError: ``peft`` is not installed.
        ConfigError: No layer has one of the names.
    """
    peft = require("peft", needed_by="actor.model.is_lora")
    layers = {name: name.rsplit(".", 1)[-1] for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    chosen = [path for path, name in layers.items() if name in cfg.lora_target_modules and not is_within(path, whole)]
    if not chosen:
        raise ConfigError(
            f"actor.model.lora_target_modules: received {cfg.lora_target_modules}; the model's linear layers are "
            f"{', '.join(sorted(set(layers.values())))}. Name some of these."
        )
    lora = peft.LoraConfig(
        r=cfg.lora_rank, lora_alpha=cfg.lora_scaling * cfg.lora_rank, target_modules=chosen, lora_dropout=0.0
    )
    peft.inject_adapter_in_model(lora, model, adapter_name=ADAPTER)


def adapt_policy(policy: nn.Module, parts: nn.Module, cfg: VLAConfig) -> None:
    """Put adapters into parts of a policy, in place, and train next to them only the modules that are trained whole.

    Without ``is_lora`` nothing changes.

    Args:
        policy: Keeps its module names. What it has frozen stays frozen.
        parts: Those whose linear layers get adapters.
        cfg: Of adapters; ``lora_whole_modules`` among it.

    Raises:
        MissingPackageError: ``peft`` is not installed.
        ConfigError: The policy has no module or layer of a name.
    """
    if not cfg.is_lora:
        return
    whole = cfg.lora_whole_modules
    trained = {id(p): name for name, p in policy.named_parameters() if p.requires_grad and is_within(name, whole)}
    missing = {name for name in whole if not any(is_within(path, [name]) for path in trained.values())}
    unknown = sorted(missing - set(cfg.possible_whole_modules()))
    if unknown:
        raise ConfigError(
            f"actor.model.lora_whole_modules: received {', '.join(unknown)}, where the model trains no parameters; its "
            f"parts are {', '.join(name for name, _ in policy.named_children())}. Name them, or modules in them."
        )
    add_adapters(parts, cfg, whole=whole)
    for name, parameter in policy.named_parameters():
        if not is_adapter(name):
            parameter.requires_grad_(id(parameter) in trained)


def is_within(name: str, modules: Sequence[str]) -> bool:
    """Return whether a parameter or module is, or belongs to, one of some modules.

    Args:
        name: Dotted, from the model's root on.
        modules: Names as parts of dotted ones: ``scale`` and ``blocks.0`` both contain ``blocks.0.scale.weight``.
    """
    return any(f".{module}." in f".{name}." for module in modules)


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Run the model without its adapters: as it was before training.

    Args:
        model: Adapted by ``add_adapters``.

    Yields:
        Nothing.
    """
    layers: list[Any] = [module for module in model.modules() if hasattr(module, _BASE)]
    kept = [layer.scaling[ADAPTER] for layer in layers]
    for layer in layers:
        layer.scaling[ADAPTER] = 0.0
    try:
        yield
    finally:
        for layer, scaling in zip(layers, kept, strict=True):
            layer.scaling[ADAPTER] = scaling


def is_adapter(name: str) -> bool:
    """Return whether the parameter ``name`` of an adapted model belongs to an adapter."""
    return name.endswith((f".{_A}", f".{_B}"))


def initial_adapter(name: str, shape: Sequence[int], seed: int) -> torch.Tensor:
    """Return an adapter's first weights: with them the model computes as it did without.

    Args:
        name: Of the parameter, which ``is_adapter``.
        shape: Its shape.
        seed: Of the run.
    """
    weights = torch.zeros(tuple(shape))
    if name.endswith(_A):
        generator = torch.Generator().manual_seed(derive_seed(seed, "adapter", name))
        nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=generator)
    return weights


def unadapted_name(name: str) -> str:
    """Return the name that a weight of an adapted model had before."""
    return name.replace(f".{_BASE}.", ".")


def is_adapted(name: str) -> bool:
    """Return whether the parameter ``name`` of an adapted model is what an adapter is added to."""
    return name.endswith(f".{_BASE}.weight")


def merged(
    weights: Mapping[str, torch.Tensor], cfg: LoRAKeys, whole: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield weights under the names they had before the adapters, the adapters added in.

    Args:
        weights: Of a model adapted by ``add_adapters``.
        cfg: The keys it was adapted with.
        whole: Returns a tensor unsharded.
    """
    for name, tensor in weights.items():
        layer, _, parameter = name.rpartition(f".{_BASE}.")
        if is_adapter(name):
            continue
        full = whole(tensor)
        if layer and parameter == "weight":
            a, b = whole(weights[f"{layer}.{_A}"]), whole(weights[f"{layer}.{_B}"])
            full = torch.addmm(full, b, a, alpha=cfg.lora_scaling)
        yield f"{layer}.{parameter}" if layer else name, full


def adapted_layer(name: str) -> str:
    """Return the layer whose adapter the parameter ``name`` belongs to."""
    return name.removesuffix(f".{_A}").removesuffix(f".{_B}")


def adapter_names(layer: str) -> tuple[str, str]:
    """Return the names of a layer's two matrices: first the one that the input is multiplied by."""
    return f"{layer}.{_A}", f"{layer}.{_B}"
