"""How many operations training on sequences takes: what the use of an accelerator is measured by."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf.algorithms.minibatch import SequenceCost


@dataclass(frozen=True, slots=True)
class DecoderFlops:
    """The operations of a decoder: two for each weight and token, and attention's for each pair of tokens.

    Attributes:
        cost: Work of a sequence, in units of a token's in the layers.
        layer_parameters: Weights of the decoder layers that a token meets.
        head_parameters: Weights that logits are computed with, of the tokens of responses alone.
    """

    cost: SequenceCost
    layer_parameters: int
    head_parameters: int

    def of_training(self, work: float, response_tokens: int) -> float:
        """Return the operations of a forward and a backward pass, the latter counted as two forward passes.

        Recomputation (gradient checkpointing) and frozen weights (adapters) are not accounted for: these are operations
        of the model (Chowdhery et al., arXiv 2204.02311, App. B), not of the hardware.

        Args:
            work: Of all sequences, prompts and responses, by ``cost``.
            response_tokens: Tokens of the responses.
        """
        return 3 * 2 * (self.layer_parameters * work + self.head_parameters * response_tokens)
