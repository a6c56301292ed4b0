"""Where adapters are received without what they are added to: both are merged on the receiver's host."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.config.schema.model import CausalLMConfig
from rlinf.hybrid_engines.weights.bucket import Manifest, WeightUpdate, check_manifest, fill_buckets, plan_buckets
from rlinf.hybrid_engines.weights.memory import BucketMemory
from rlinf.models.lora import adapted, is_adapter, merged


class AdapterMerger:
    """Keeps a model's parts on the host, and hands on weights that have the newest adapters added in.

    Weights that bfloat16 represents exactly, as it does those that were published in it, are kept in it.

    Attributes:
        version: Of the parts; -1 until they are complete.

    Args:
        cfg: The ``actor.model`` section.
        bucket_bytes: Size at which a bucket is closed.
        dtype: In which merged floating-point weights are handed on; they are computed in float32.
    """

    def __init__(self, cfg: CausalLMConfig, *, bucket_bytes: int, dtype: torch.dtype = torch.float32) -> None:
        self._cfg, self._bucket_bytes, self._dtype = cfg, bucket_bytes, dtype
        self._parts: dict[str, torch.Tensor] = {}
        self._memory = BucketMemory()
        self._update: WeightUpdate | None = None
        self.version = -1

    def begin(self, manifest: Manifest) -> None:
        """Get ready for parts, or for adapters alone (``is_partial``).

        Raises:
            WeightSyncError: There is nothing that adapters could be added to, or they are others; or the version is an
                older one.
        """
        self._update = WeightUpdate(manifest, current_version=self.version)
        if manifest.is_partial:
            adapters = {name: tensor for name, tensor in self._parts.items() if is_adapter(name)}
            check_manifest(manifest, adapters, adapters)
        else:
            self._parts.clear()
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

    def pack(self, *, is_partial: bool) -> tuple[Manifest, list[torch.Tensor]]:
        """Return the merged weights as an engine loads them.

        Args:
            is_partial: Whether only those that adapters change; the engine has the others.

        Returns:
            A manifest, and its buckets in order.
        """
        parts = adapted(self._parts) if is_partial else self._parts
        manifest = plan_buckets(
            merged(parts, self._cfg, _described),
            version=self.version,
            bucket_bytes=self._bucket_bytes,
            dtype=self._dtype,
            is_partial=is_partial,
        )
        buckets = list(fill_buckets(manifest, merged(parts, self._cfg, _full), self._memory.allocate))
        return replace(manifest, is_checked=True, is_lasting=True), buckets


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy on the host that takes little memory and loses nothing."""
    if tensor.dtype == torch.float32:
        half = tensor.to("cpu", torch.bfloat16)
        if torch.equal(half.float(), tensor.cpu()):
            return half
    return tensor.to("cpu", copy=True)


def _full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _described(tensor: torch.Tensor) -> torch.Tensor:
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    return torch.empty(tensor.shape, dtype=dtype, device="meta")
