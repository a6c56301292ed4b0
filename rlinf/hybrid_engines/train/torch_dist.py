"""Weights in checkpoints of Megatron-LM and what is built on it (``torch_dist``), read as Hugging Face tensors.

Such a checkpoint holds whole fused tensors, independent of the layout that wrote it; those of all layers are stacked,
and so are those of all experts. Megatron-Core is not needed to read one.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import torch

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.chunks import Chunk, ChunkedTensor, read_state, stored_tensors
from rlinf.hybrid_engines.train.weight_files import StoredWeights
from rlinf.models.files.tensor_files import abridged
from rlinf.models.fused import RULES, Part, Piece, block_of, head_dim, pieces_of
from rlinf.utils.optional import require

_EMBEDDING = "embedding.word_embeddings.weight"
_OTHER_NAMES = {"embedding.weight": _EMBEDDING, "head.weight": "output_layer.weight"}
_OTHER_LAYER_NAMES = {
    "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
    "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
}
"""Norms that are computed together with the layer behind them, as Transformer Engine does."""
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
_EXPERT = re.compile(r"(mlp\.experts)\.local_experts\.(\d+)\.(.+)")
_STACKED_EXPERTS = re.compile(r"(.+\.mlp\.experts)\.(?:gate_up|down)_proj")


def find_torch_dist(path: Path) -> Path | None:
    """Return the folder of a ``torch_dist`` checkpoint; None if the path is none.

    Args:
        path: The folder (``iter_0000100``), or the one above it, of whose checkpoints the latest is taken.

    Raises:
        CheckpointError: It is of another format of Megatron.
    """
    latest = path / "latest_checkpointed_iteration.txt"
    if latest.is_file():
        name = latest.read_text(encoding="utf-8").strip()
        path /= f"iter_{int(name):07d}" if name.isdigit() else name
    file = path / "metadata.json"
    if not file.is_file():
        return None
    backend = json.loads(file.read_text(encoding="utf-8")).get("sharded_backend")
    if backend != "torch_dist":
        raise CheckpointError(f"'{path}' has the format {backend!r}; read is torch_dist. Let Megatron convert it.")
    return path


def open_torch_dist(folder: Path, like: Path) -> StoredWeights:
    """Open the weights of a language model.

    Args:
        folder: As ``find_torch_dist`` returns it.
        like: Folder with the configuration of the model, as Hugging Face has it.

    Returns:
        Weights by the names that they have in files of Hugging Face.

    Raises:
        CheckpointError: It lacks weights of the model, or has other shapes.
    """
    transformers = require("transformers", needed_by="a torch_dist checkpoint")
    config = transformers.AutoConfig.from_pretrained(like)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    stored = _FusedTensors(folder)
    places: dict[str, list[tuple[str, Piece]]] = {}
    for fused in _fused_names(config, shapes):
        for piece in pieces_of(fused, shapes, Part(0, 1, head_dim(config))):
            places.setdefault(_file_name(piece), []).append((fused, piece))
    missing = sorted(shapes.keys() - {piece.name for pieces in places.values() for _, piece in pieces})
    if missing:
        raise CheckpointError(f"'{like}': no rule says what {abridged(missing)} is in a checkpoint of Megatron.")
    described = {
        name: torch.empty(_shape(pieces[0][1], shapes), dtype=stored.dtype, device="meta")
        for name, pieces in places.items()
    }
    num_rows: dict[str, int] = {}
    for fused, piece in (each for pieces in places.values() for each in pieces):
        num_rows[fused] = max(num_rows.get(fused, 0), piece.end)
    for fused, count in num_rows.items():
        stored.require(fused, count)

    def read(name: str) -> torch.Tensor:
        tensor = torch.empty(described[name].shape, dtype=stored.dtype)
        for fused, piece in places[name]:
            block = piece.of_fused(stored.read(fused))
            if _STACKED_EXPERTS.fullmatch(piece.name):
                tensor.copy_(block[0])
            else:
                block_of(tensor, piece).copy_(block)
        return tensor

    return StoredWeights(described, read)


class _FusedTensors:
    """The tensors of a checkpoint by the names of fused ones, see ``rlinf.models.fused``.

    Args:
        folder: Of the checkpoint.

    Attributes:
        dtype: Of the weights.

    Raises:
        CheckpointError: It holds no language model.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._stored = folder, stored_tensors(folder)
        keys = [key for key in self._stored if key.endswith(_EMBEDDING) and not key.startswith("optimizer.")]
        if len(keys) != 1:
            raise CheckpointError(
                f"'{folder}' holds the embeddings of {len(keys)} models ({_EMBEDDING}); expected one."
            )
        self._prefix = keys[0].removesuffix(_EMBEDDING)
        self.dtype = self._stored[keys[0]].dtype
        self.read = functools.lru_cache(maxsize=2)(self._read)

    def require(self, fused: str, num_rows: int) -> None:
        """Return if there is a tensor with as many rows, or more, of which the further ones are padding.

        Raises:
            CheckpointError: There is none.
        """
        key, index = self._place(fused)
        found = self._stored[key].shape[len(index)]
        if found < num_rows:
            raise CheckpointError(f"'{self._folder}': '{key}' has {found} rows, the model of --like {num_rows}.")

    def _read(self, fused: str) -> torch.Tensor:
        """Return a tensor without those that it is stacked with."""
        key, index = self._place(fused)
        shape = self._stored[key].shape
        own = shape[len(index) :]
        block = torch.empty((*(1 for _ in index), *own), dtype=self._stored[key].dtype)
        read_state(self._folder, {key: ChunkedTensor(shape, [Chunk((*index, *(0 for _ in own)), block)])})
        return block.view(own)

    def _place(self, fused: str) -> tuple[str, tuple[int, ...]]:
        """Return the key of the tensor that holds a fused one, and where in its first dimensions it lies."""
        candidates: list[tuple[str, tuple[int, ...]]] = [(_OTHER_NAMES.get(fused, fused), ())]
        match = _LAYER.fullmatch(fused)
        if match is not None:
            layer, name = int(match.group(1)), match.group(2)
            index: tuple[int, ...] = ()
            if expert := _EXPERT.fullmatch(name):
                name, index = f"{expert.group(1)}.experts.{expert.group(3)}", (int(expert.group(2)),)
            names = [name, *filter(None, [_OTHER_LAYER_NAMES.get(name)])]
            candidates = [(f"decoder.layers.{each}", (layer, *index)) for each in names]
            candidates += [(f"decoder.layers.{layer}.{each}", index) for each in names]
        for key, place in candidates:
            tensor = self._stored.get(self._prefix + key)
            if tensor is not None and all(at < size for at, size in zip(place, tensor.shape, strict=False)):
                return self._prefix + key, place
        wanted = ", ".join(f"'{self._prefix}{key}'" for key, _ in candidates)
        raise CheckpointError(f"'{self._folder}' does not have {fused} of the model of --like: there is no {wanted}.")


def _fused_names(config: Any, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    """Return the names of the fused tensors that the model consists of."""
    experts = range(getattr(config, "num_experts", 0) or 0)
    found = []
    for rule in RULES:
        layers = range(config.num_hidden_layers) if "{layer}" in rule.fused else range(1)
        for layer in layers:
            if all(name.format(layer=layer) in shapes for name in rule.names):
                numbers = experts if "{expert}" in rule.fused else range(1)
                found += [rule.fused.format(layer=layer, expert=expert) for expert in numbers]
    return found


def _file_name(piece: Piece) -> str:
    """Return the name of a piece's tensor in files: there each expert has tensors of its own."""
    match = _STACKED_EXPERTS.fullmatch(piece.name)
    if match is None:
        return piece.name
    kind = "down" if piece.name.endswith("down_proj") else "gate" if piece.offsets[1] == 0 else "up"
    return f"{match.group(1)}.{piece.offsets[0]}.{kind}_proj.weight"


def _shape(piece: Piece, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    return piece.sizes[1:] if _STACKED_EXPERTS.fullmatch(piece.name) else shapes[piece.name]
