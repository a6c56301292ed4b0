"""How tensors that other code fuses or splits are made of those of Hugging Face checkpoints.

Every relation is a list of ``Piece``: a block of a Hugging Face tensor, and the rows that hold it. Loading, exporting,
importing and checkpoints all follow from the same lists. Pure torch: knows neither Megatron-Core nor process groups.
Extend by a row of ``RULES`` where a model has tensors of another kind.
"""

from __future__ import annotations

from rlinf.models.fused.fusion_rules import RULES, Part, Rule, head_dim, pieces_of
from rlinf.models.fused.pieces import Piece, block_of, check_coverage, fill_fused

__all__ = ["RULES", "Part", "Piece", "Rule", "block_of", "check_coverage", "fill_fused", "head_dim", "pieces_of"]
