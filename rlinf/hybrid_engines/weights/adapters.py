"""Where adapters are received without what they are added to: both are merged by the receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.model import ModelConfig
from rlinf.hybrid_engines.weights.bucket import (
    Manifest,
    WeightReceiver,
    WeightUpdate,
    check_manifest,
    fill_buckets,
    plan_buckets,
)
from rlinf.hybrid_engines.weights.memory import BucketMemory
from rlinf.models.base_policy import BasePolicy
from rlinf.models.lora import is_adapted, merged, unadapted_name
from rlinf.telemetry.trace import traced


class AdapterMerger:
    """Keeps a model's parts on the host, and hands on weights that have the newest adapters added in.

    Weights that bfloat16 represents exactly, as it does those that were published in it, are kept in it.

    Attributes:
        version: Of the parts; -1 until they are complete.

    Args:
        cfg: The ``actor.model`` section.
        bucket_bytes: Size at which a bucket is closed.
        dtype: In which merged floating-point weights are handed on; they are computed in float32. None leaves them so.
    """

    def __init__(self, cfg: LoRAKeys, *, bucket_bytes: int, dtype: torch.dtype | None = None) -> None:
        self._cfg, self._bucket_bytes, self._dtype = cfg, bucket_bytes, dtype
        self._parts: dict[str, torch.Tensor] = {}
        self._left_out: frozenset[str] = frozenset()
        self._memory = BucketMemory()
        self._update: WeightUpdate | None = None
        self.version = -1

    def begin(self, manifest: Manifest) -> None:
        """Get ready for parts, or for what is trained alone.

        Raises:
            WeightSyncError: What is left out is not there, or is something else; or the version is an older one.
        """
        self._update = WeightUpdate(manifest, current_version=self.version)
        if manifest.is_partial:
            check_manifest(manifest, self._parts, self._parts)
        else:
            self._parts.clear()
        self._left_out = frozenset(manifest.left_out)
        self.version = -1

    def take(self, index: int, bucket: torch.Tensor) -> None:
        """Keep what is in a bucket.

        Raises:
            WeightSyncError: There is no such bucket, or its checksum is wrong.
        """
        assert self._update is not None
        self._parts |= {name: _compact(tensor) for name, tensor in self._update.take(index, bucket)}

    def finish(self) -> None:
        """End the update.

        Raises:
            WeightSyncError: A bucket is missing.
        """
        assert self._update is not None
        self.version = self._update.finish()

    def take_all(self, manifest: Manifest, buckets: Sequence[torch.Tensor]) -> None:
        """Take an update that has arrived whole.

        Args:
            manifest: What the sender announced.
            buckets: In the manifest's order.

        Raises:
            WeightSyncError: From ``begin``, ``take`` or ``finish``.
        """
        self.begin(manifest)
        for index, bucket in enumerate(buckets):
            self.take(index, bucket)
        self.finish()

    def plan(self, *, is_partial: bool) -> Manifest:
        """Return what the merged weights are.

        Args:
            is_partial: Whether only those that the last update changed; the model has the others.
        """
        sent, kept = self._chosen(is_partial=is_partial)
        return plan_buckets(
            merged(sent, self._cfg, _described),
            version=self.version,
            bucket_bytes=self._bucket_bytes,
            dtype=self._dtype,
            left_out=[unadapted_name(name) for name in kept],
        )

    def weights(self, *, is_partial: bool, device: torch.device | None = None) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the merged weights, one at a time, in the order of ``plan``.

        Args:
            is_partial: As of ``plan``.
            device: Where they are merged; None is the host.
        """
        whole: Callable[[torch.Tensor], torch.Tensor] = _full if device is None else lambda part: _full(part.to(device))
        return merged(self._chosen(is_partial=is_partial)[0], self._cfg, whole)

    def pack(self, *, is_partial: bool) -> tuple[Manifest, list[torch.Tensor]]:
        """Return the merged weights as an engine loads them.

        Args:
            is_partial: As of ``plan``.

        Returns:
            A manifest, and its buckets in order.
        """
        manifest = self.plan(is_partial=is_partial)
        buckets = list(fill_buckets(manifest, self.weights(is_partial=is_partial), self._memory.allocate))
        return replace(manifest, is_checked=True, is_lasting=True), buckets

    def _chosen(self, *, is_partial: bool) -> tuple[dict[str, torch.Tensor], list[str]]:
        """Return the parts that are merged, and the names of those that an engine or model has already."""
        kept = {name for name in self._left_out if is_partial and not is_adapted(name)}
        return {name: part for name, part in self._parts.items() if name not in kept}, sorted(kept)


class MergingReceiver(WeightReceiver):
    """Loads weights with adapters into a model without: they are merged where the model is, as the sender would.

    Args:
        model: Filled in place; keeps its own precision and device.
        cfg: The ``actor.model`` section.
        ignore: Returns by name whether a tensor is never sent.
    """

    def __init__(self, model: nn.Module, cfg: LoRAKeys, *, ignore: Callable[[str], bool] | None = None) -> None:
        super().__init__(model, ignore=ignore)
        self._merger = AdapterMerger(cfg, bucket_bytes=1)  # nothing is packed

    @traced("load_weights", "weights")
    @torch.no_grad()
    def load(self, manifest: Manifest, buckets: Sequence[torch.Tensor]) -> None:
        """See ``WeightReceiver``."""
        self._merger.take_all(manifest, buckets)
        targets = self.targets()
        check_manifest(self._merger.plan(is_partial=True), targets, targets)
        device = next(iter(targets.values())).device
        for name, tensor in self._merger.weights(is_partial=True, device=device):
            targets[name].copy_(tensor)
        self.version = self._merger.version


def weight_receiver(policy: BasePolicy, cfg: ModelConfig) -> WeightReceiver:
    """Return what loads the weights that an actor publishes into a policy for inference, which has no adapters.

    Args:
        policy: Filled in place.
        cfg: The ``actor.model`` section; it says whether the actor's model has adapters.
    """
    if isinstance(cfg, LoRAKeys) and cfg.is_lora:
        return MergingReceiver(policy, cfg, ignore=policy.is_training_only)
    return WeightReceiver(policy, ignore=policy.is_training_only)


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the host that takes little memory and loses nothing."""
    if tensor.dtype == torch.float32:
        half = tensor.to("cpu", torch.bfloat16)
        if torch.equal(half.float(), tensor.cpu()):
            return half
    return tensor.to("cpu", copy=True)


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _described(tensor: torch.Tensor) -> torch.Tensor:
    dtype = torch.float32 if tensor.dtype in _HALVES else tensor.dtype
    return torch.empty(tensor.shape, dtype=dtype, device="meta")


_HALVES = (torch.bfloat16, torch.float16)
