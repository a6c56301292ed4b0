"""One rank's part of a language model: embeddings, some layers, and the head, as far as its stage has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core.enums import ModelType
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.layers import VocabParallelEmbedding, set_tensor_model_parallel_attributes
from megatron.core.tensor_parallel.mappings import (
    copy_to_tensor_model_parallel_region,
    gather_from_sequence_parallel_region,
)
from megatron.core.transformer.transformer_block import TransformerBlock, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from torch import nn

from rlinf.data.packing import PackedSequences
from rlinf.hybrid_engines.train.megatron.layer_config import windows
from rlinf.hybrid_engines.train.megatron.layers import block_spec
from rlinf.models.fused.fusion_rules import vocabulary_share
from rlinf.models.language.causal_lm import CausalLM
from rlinf.models.language.expert_routing import ExpertRouting, RankRouting
from rlinf.models.language.language_model import LanguageModel, TokenEvaluation
from rlinf.models.language.token_logprobs import LogprobHead, VocabularyShard
from rlinf.models.language.token_plan import TokenPlan, plan_tokens
from rlinf.models.trainable import WeightForm


@dataclass(frozen=True, slots=True)
class StagePlace:
    """Where a part of the model lies.

    Attributes:
        groups: Process groups of the rank.
        chunk: Number of the part on its rank, under the interleaved schedule; else None.
        num_chunks: Parts on each rank.
    """

    groups: ProcessGroupCollection
    chunk: int | None = None
    num_chunks: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it has the embeddings."""
        return bool(dist.get_rank(self.groups.pp) == 0 and not self.chunk)

    @property
    def is_last(self) -> bool:
        """Whether it has the head."""
        last = dist.get_rank(self.groups.pp) == dist.get_world_size(self.groups.pp) - 1
        return bool(last and (self.chunk is None or self.chunk == self.num_chunks - 1))


class MegatronLM(LanguageModel):
    """A stage of a language model, or all of it.

    Called on a stage that is not the last, it returns hidden states instead of a ``TokenEvaluation``.

    Args:
        model: The whole model on device ``meta``: configuration, names and shapes.
        config: Of Megatron-Core.
        place: Which part of the model it is.

    Attributes:
        first_layer: Number of its first layer in the whole model.
    """

    embedding: VocabParallelEmbedding
    frequencies: torch.Tensor

    def __init__(self, model: CausalLM, config: TransformerConfig, place: StagePlace) -> None:
        super().__init__()
        self.cfg, self.hf_config, self.config = model.cfg, model.hf_config, config
        self.place, self.groups = place, place.groups
        # In a tuple, so that it is no part of this module.
        self._whole = (model,)
        self.pre_process, self.post_process, self.vp_stage = place.is_first, place.is_last, place.chunk
        self.model_type = ModelType.encoder_or_decoder
        self.share_embeddings_and_output_weights = model.is_tied
        self._num_layer_parameters = model.num_layer_parameters
        self._has_value_head = model.has_value_head
        self.vocabulary = self.hf_config.vocab_size
        rotary = model.get_buffer(f"{model.decoder_name}.rotary_emb.inv_freq")
        self.register_buffer("frequencies", rotary.detach().clone().float(), persistent=False)
        if self.pre_process:
            self.embedding = self._embedding()
            self.embedding.weight.shared_embedding = self._has_copies
        pp_rank = dist.get_rank(self.groups.pp)
        self.first_layer = get_transformer_layer_offset(config, place.chunk, pp_rank)
        spec = block_spec(
            get_num_layers_to_build(config, place.chunk, pp_rank),
            windows(self.hf_config),
            qk_norm=config.qk_layernorm,
            experts=config.num_moe_experts is not None,
        )
        self.decoder = TransformerBlock(
            config,
            spec,
            pre_process=self.pre_process,
            post_process=self.post_process,
            pg_collection=self.groups,
            vp_stage=place.chunk,
        )
        self.head: LogprobHead | None = None
        self.value_head: nn.Linear | None = None
        if self.post_process:
            self._add_heads()

    def forward(
        self,
        packed: PackedSequences,
        *,
        temperature: float = 1.0,
        scored: torch.Tensor | None = None,
        with_top: bool = False,
        routing: ExpertRouting | None = None,
    ) -> TokenEvaluation:
        """See ``LanguageModel``."""
        multiple = self.config.tensor_model_parallel_size if self.config.sequence_parallel else 1
        plan = plan_tokens(packed, context=self.groups.cp, hidden_size=self.config.hidden_size, multiple=multiple)
        if routing is not None:
            # Under sequence parallelism each tensor rank routes a share of the tokens.
            own = plan.places.chunk(multiple)[dist.get_rank(self.groups.tp) if multiple > 1 else 0]
            plan.routing = RankRouting(routing, own, scale=self.balance_scale)
        rotary = rotary_angles(plan.position_ids, self.frequencies)
        # Megatron-Core's embedding transposes what it scatters.
        ids = plan.token_ids.unsqueeze(0 if self.config.sequence_parallel else 1)
        hidden = self._embed(ids, multiple) if self.pre_process else None
        hidden = self.decoder(hidden_states=hidden, attention_mask=None, rotary_pos_emb=rotary, attention_bias=plan)
        if self.head is None:
            # The schedule sends it to the next stage.
            return hidden  # type: ignore[no-any-return]
        return self._evaluate(hidden, packed, plan, temperature=temperature, scored=scored, with_top=with_top)

    def set_input_tensor(self, tensors: list[torch.Tensor | None]) -> None:
        """Take the hidden states of the stage before; called by Megatron-Core's schedules."""
        self.decoder.set_input_tensor(tensors[0])

    def shared_embedding_or_output_weight(self) -> nn.Parameter | None:
        """Return the tied weights, if this stage has them; called by Megatron-Core when gradients are complete."""
        if self.pre_process:
            return self.embedding.weight  # type: ignore[no-any-return]
        return None if self.head is None else self.head.weight

    def named_fused(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters by their fused names, layers counted over all stages and experts over all ranks."""
        for name, parameter in self.named_parameters():
            parts = name.split(".")
            if parts[:2] == ["decoder", "layers"]:
                parts[2] = str(int(parts[2]) + self.first_layer)
            if "local_experts" in parts:
                place = parts.index("local_experts") + 1
                each = self.config.num_moe_experts // self.config.expert_model_parallel_size
                parts[place] = str(int(parts[place]) + each * dist.get_rank(self.groups.ep))
            yield ".".join(parts), parameter

    def export(
        self, whole: Callable[[torch.Tensor], torch.Tensor], form: WeightForm = "merged"
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainableModel``: the whole model on device ``meta``; the engine has the values."""
        yield from self._whole[0].export(whole, form)

    def without_adapters(self) -> AbstractContextManager[None]:
        """See ``LanguageModel``: there are none."""
        return nullcontext()

    @property
    def has_value_head(self) -> bool:
        """See ``LanguageModel``; the same on every stage."""
        return self._has_value_head

    @property
    def can_share_prompts(self) -> bool:
        """See ``LanguageModel``."""
        return True

    @property
    def num_layer_parameters(self) -> int:
        """See ``LanguageModel``."""
        return self._num_layer_parameters

    @property
    def _has_copies(self) -> bool:
        """Whether first and last stage have a copy of the tied embeddings each."""
        return bool(self.share_embeddings_and_output_weights and self.config.pipeline_model_parallel_size > 1)

    def _embedding(self) -> VocabParallelEmbedding:
        size = dist.get_world_size(self.groups.tp)
        return VocabParallelEmbedding(
            num_embeddings=vocabulary_share(self.vocabulary, size) * size,
            embedding_dim=self.config.hidden_size,
            init_method=self.config.init_method,
            reduce_scatter_embeddings=self.config.sequence_parallel,
            config=self.config,
            tp_group=self.groups.tp,
        )

    def _embed(self, ids: torch.Tensor, multiple: int) -> torch.Tensor:
        """Return this rank's hidden states; the padding token's row has no gradient, as in transformers."""
        hidden: torch.Tensor = self.embedding(ids)
        table = self._whole[0].get_submodule(f"{self._whole[0].decoder_name}.embed_tokens")
        assert isinstance(table, nn.Embedding)
        if table.padding_idx is None:
            return hidden
        own = ids.flatten().chunk(multiple)[dist.get_rank(self.groups.tp) if multiple > 1 else 0]
        return torch.where(own.eq(table.padding_idx).view(-1, 1, 1), hidden.detach(), hidden)

    def _add_heads(self) -> None:
        device, dtype = next(self.decoder.parameters()).device, self.config.params_dtype
        size, rank = dist.get_world_size(self.groups.tp), dist.get_rank(self.groups.tp)
        share = vocabulary_share(self.vocabulary, size)
        shard = VocabularyShard(
            begin=min(self.vocabulary, rank * share),
            end=min(self.vocabulary, (rank + 1) * share),
            group=self.groups.tp if size > 1 else None,
        )
        if self.pre_process and self.share_embeddings_and_output_weights:
            weight: nn.Parameter = self.embedding.weight
        else:
            weight = nn.Parameter(torch.empty(share, self.config.hidden_size, dtype=dtype, device=device))
            set_tensor_model_parallel_attributes(weight, is_parallel=True, dim=0, stride=1)
        # An attribute that Megatron-Core reads.
        weight.__dict__["shared_embedding"] = self._has_copies
        self.head = LogprobHead(weight, shard=shard)
        if self._has_value_head:
            self.value_head = nn.Linear(self.config.hidden_size, 1, dtype=dtype, device=device)

    def _evaluate(
        self,
        hidden: torch.Tensor,
        packed: PackedSequences,
        plan: TokenPlan,
        *,
        temperature: float,
        scored: torch.Tensor | None,
        with_top: bool,
    ) -> TokenEvaluation:
        """Return what the head and the value head compute of the last hidden states [T', 1, H]."""
        assert self.head is not None
        has_context = packed.position_ids > 0
        rows = (has_context if scored is None else has_context & scored).nonzero().squeeze(1)
        # Each rank computes a part of every token's probabilities: its gradient of hidden states is a summand.
        if self.config.sequence_parallel:
            states = gather_from_sequence_parallel_region(hidden, group=self.groups.tp)
        else:
            states = copy_to_tensor_model_parallel_region(hidden, group=self.groups.tp)
        rows, before_rows = plan.own_rows(rows, packed.previous[rows])
        before = states.squeeze(1)[before_rows]
        logprobs, entropy, is_top = self.head(before, packed.token_ids[rows], temperature, with_top=with_top)
        values = None
        if self.value_head is not None:
            # The values are computed whole by every rank.
            if self.config.sequence_parallel:
                hidden = gather_from_sequence_parallel_region(
                    hidden, tensor_parallel_output_grad=False, group=self.groups.tp
                )
            values = self.value_head(hidden.squeeze(1)[before_rows]).squeeze(-1).to(logprobs.dtype)
        spread = [
            None if found is None else plan.whole(found, rows, packed.num_tokens)
            for found in (logprobs, entropy, values, is_top)
        ]
        assert spread[0] is not None
        assert spread[1] is not None
        return TokenEvaluation(spread[0], spread[1], spread[2], spread[3])


def rotary_angles(positions: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Return float32 [T, 1, 1, D] angles of tokens' positions.

    Args:
        positions: int64 [T].
        frequencies: float32 [D / 2]; of the rotary embedding.
    """
    angles = positions.to(frequencies.dtype).unsqueeze(1) * frequencies
    return torch.cat([angles, angles], dim=1).view(-1, 1, 1, 2 * len(frequencies))
