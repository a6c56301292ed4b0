"""Which blocks of the Hugging Face tensors this rank has, and how the ranks' blocks become whole tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import nn

from rlinf.hybrid_engines.train.chunks import Chunk, ChunkedTensor
from rlinf.hybrid_engines.train.megatron.stage import MegatronLM
from rlinf.hybrid_engines.train.state import FileNames
from rlinf.models.files.tensor_files import RowSource
from rlinf.models.fused import Part, Piece, block_of, check_coverage, fill_fused, head_dim, pieces_of
from rlinf.models.fused.fusion_rules import is_split
from rlinf.models.language.causal_lm import CausalLM
from rlinf.models.trainable import WeightForm
from rlinf.placement.parallel import ParallelLayout


class ModelShards:
    """The fused parameters of a rank, and the Hugging Face tensors that they are blocks of.

    Args:
        model: The whole model on device ``meta``.
        stages: This rank's parts of it.
        layout: Of all ranks.
        rank: Number of this process.

    Attributes:
        shapes: Of all Hugging Face tensors, tied ones once, in the order in which they are exported.
        fused: This rank's parameters by fused name.
        pieces: What each consists of.
        model: The whole model.

    Raises:
        ConfigError: A tensor of the model is on no rank.
    """

    def __init__(self, model: CausalLM, stages: list[MegatronLM], layout: ParallelLayout, rank: int) -> None:
        tied = f"{getattr(model, 'head_name', '')}." if model.is_tied else None
        self.shapes: Mapping[str, tuple[int, ...]] = {
            name: tuple(tensor.shape)
            for name, tensor in model.state_dict().items()
            if tied is None or not name.startswith(tied)
        }
        self.model = model
        self._training_only = {name for name in self.shapes if model.is_training_only(name)}
        seat = layout.seat(rank)
        width = head_dim(model.hf_config)
        dense = Part(seat.tensor, layout.tensor, width)
        expert = Part(rank % layout.expert_tensor, layout.expert_tensor, width)
        self.fused: dict[str, nn.Parameter] = {name: p for stage in stages for name, p in stage.named_fused()}
        self.pieces: dict[str, list[Piece]] = {}
        self._owned: dict[str, list[tuple[str, Piece]]] = {}
        self._group = stages[0].groups.mp if layout.expert == 1 else None
        for name in self.fused:
            part = expert if "local_experts" in name else dense
            self.pieces[name] = pieces_of(name, self.shapes, part, tied=model.is_tied)
            if self._is_owner(name, layout, rank, is_copy=model.is_tied and name == "head.weight"):
                for piece in self.pieces[name]:
                    self._owned.setdefault(piece.name, []).append((name, piece))
        self._check()

    def load(self, source: RowSource | None) -> None:
        """Fill this rank's parameters.

        Args:
            source: Has the Hugging Face tensors; None leaves the parameters as they are.
        """
        if source is None:
            return
        with torch.no_grad():
            for name, parameter in self.fused.items():
                fill_fused(parameter, self.pieces[name], source)

    def chunks(self, of: Mapping[str, torch.Tensor], file_names: FileNames) -> dict[str, ChunkedTensor]:
        """Return this rank's blocks of the Hugging Face tensors, sharing memory with ``of``.

        Args:
            of: Tensors in the shapes of the fused parameters, by fused name.
            file_names: Names in a checkpoint of what models stack; see ``TrainableModel.file_names``.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        found: dict[str, list[Chunk]] = {}
        for fused_name, pieces in self.pieces.items():
            for piece in pieces:
                name, shape, offsets = piece.name, self.shapes[piece.name], piece.offsets
                block = piece.of_fused(of[fused_name])
                if name in file_names:
                    columns = file_names[name]
                    rows = shape[1] // len(columns)
                    name, shape = columns[offsets[1] // rows][offsets[0]], (rows, shape[2])
                    offsets, block = (offsets[1] % rows, offsets[2]), block.squeeze(0)
                shapes[name] = shape
                found.setdefault(name, []).append(Chunk(offsets, block))
        return {name: ChunkedTensor(shapes[name], chunks) for name, chunks in found.items()}

    def exported(self, form: WeightForm) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield names and shapes of what inference needs."""
        for name, shape in self.shapes.items():
            if name not in self._training_only and form != "adapters":
                yield name, shape

    @torch.no_grad()
    def whole(self, name: str, of: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor:
        """Return a Hugging Face tensor on every rank; all ranks call it together.

        Args:
            name: Of the tensor.
            of: Tensors in the shapes of the fused parameters, by fused name; None takes the parameters.
        """
        fused: Mapping[str, torch.Tensor] = self.fused if of is None else of
        example = next(iter(fused.values()))
        result = torch.zeros(self.shapes[name], dtype=example.dtype, device=example.device)
        for fused_name, piece in self._owned.get(name, ()):
            block_of(result, piece).copy_(piece.of_fused(fused[fused_name].detach()))
        # Every byte comes from one rank: their sum is exact, signs of zeros included.
        dist.all_reduce(result.view(-1).view(torch.uint8), group=self._group)
        return result

    @torch.no_grad()
    def put(self, name: str, whole: torch.Tensor) -> None:
        """Copy this rank's blocks of a whole tensor into its parameters, copies of tied ones included."""
        for fused_name, pieces in self.pieces.items():
            for piece in pieces:
                if piece.name == name:
                    target = piece.of_fused(self.fused[fused_name].detach())
                    target.copy_(block_of(whole, piece))

    def _is_owner(self, name: str, layout: ParallelLayout, rank: int, *, is_copy: bool) -> bool:
        """Return whether this rank hands the tensor on: of ranks with the same elements, one does."""
        seat = layout.seat(rank)
        if is_copy and layout.pipeline > 1:
            return False
        if "local_experts" in name and layout.expert > 1:
            within = rank % (layout.world_size // layout.pipeline)
            return within < layout.expert * layout.expert_tensor
        is_first = layout.expert == 1 or (seat.data == 0 and seat.context == 0)
        return is_first and (is_split(name) or seat.tensor == 0)

    def _check(self) -> None:
        owned = [piece for pieces in self._owned.values() for _, piece in pieces]
        everyone: list[list[Piece]] = [[] for _ in range(dist.get_world_size(self._group))]
        dist.all_gather_object(everyone, owned, group=self._group)
        check_coverage([piece for pieces in everyone for piece in pieces], self.shapes)
