"""A rank that loads a sharded model allocates its shard and hardly anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlinf.config.schema.train import FSDPConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model, materialize
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(300)


class PeakBytes(TorchDispatchMode):
    """Follows the memory that operations allocate on the host; views of mapped files are none."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation and note what it has allocated."""
        result = func(*args, **(kwargs or {}))
        known = {storage_of(leaf) for leaf in tree_leaves((args, kwargs))}
        for leaf in tree_leaves(result):
            key = storage_of(leaf)
            if key is not None and key not in known and key not in self.live:
                storage = leaf.untyped_storage()
                self.live[key] = (StorageWeakRef(storage), storage.nbytes())
        self.live = {key: entry for key, entry in self.live.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.live.values()))
        return result


def storage_of(leaf: Any) -> int | None:
    """Return what identifies the memory of a tensor on the host."""
    if type(leaf) in {torch.Tensor, torch.nn.Parameter} and leaf.device.type == "cpu":
        return int(leaf.untyped_storage()._cdata)
    return None


def load_sharded(rank: int, folder: Path, on_meta: bool) -> tuple[int, int, bool]:
    """Return the peak of allocated bytes, the bytes of this rank's parameters, and whether all are those stored."""
    with PeakBytes() as followed:
        engine = FSDPEngine(
            get_model(tiny_config(folder), on_meta=on_meta).requires_grad_(False),
            optim=None,
            fsdp=FSDPConfig(),
            precision="fp32",
            device=torch.device("cpu"),
            rank=rank,
            world_size=2,
        )
    locals_ = {id(p): p.to_local() for p in engine.model.parameters()}
    stored = load_file(folder / "model.safetensors")
    is_right = all(torch.equal(tensor, stored[name]) for name, tensor in engine.export_weights())
    return followed.peak, sum(tensor.nbytes for tensor in locals_.values()), is_right


def test_no_rank_holds_more_than_its_shard_at_any_time(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 768, "vocab_size": 2000, "num_hidden_layers": 3}
    save_tiny(tmp_path, **sizes, tie_word_embeddings=False)
    total = (tmp_path / "model.safetensors").stat().st_size
    for peak, shard, is_right in run_ranks(2, load_sharded, tmp_path, True):
        assert is_right
        assert 0.49 * total < shard < 0.52 * total
        assert peak <= 1.2 * shard
    for peak, shard, _ in run_ranks(2, load_sharded, tmp_path, False):
        assert peak > 1.9 * shard  # What is measured tells the two ways apart.


@pytest.mark.parametrize("chunk_bytes", [1, 100, 1 << 20])
def test_tensors_are_read_in_chunks_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    expected = save_tiny(tmp_path).state_dict()
    monkeypatch.setattr(materialize, "CHUNK_BYTES", chunk_bytes)
    found = get_model(tiny_config(tmp_path)).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
