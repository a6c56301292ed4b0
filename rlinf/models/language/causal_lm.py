"""``causal_lm``: any decoder-only language model of transformers, as training needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from rlinf.config.schema.model import CausalLMConfig
from rlinf.data.packing import PackedSequences
from rlinf.errors import ConfigError
from rlinf.models.files.peft_folder import open_adapter
from rlinf.models.language.expert_routing import ExpertRouting, ExpertSizes, RankRouting, steer_routers
from rlinf.models.language.language_model import LanguageModel, TokenEvaluation
from rlinf.models.language.model_path import require_model_path
from rlinf.models.language.packed_attention import NAME, flash_arguments, packed_attention
from rlinf.models.language.pretrained import PretrainedWeights, build_on_meta
from rlinf.models.language.token_logprobs import LogprobHead
from rlinf.models.language.token_plan import TokenPlan, plan_tokens
from rlinf.models.lora import adapters_off, add_adapters, initial_adapter, is_adapter, merged, unadapted_name
from rlinf.models.trainable import WeightForm
from rlinf.utils.optional import require

_FLASH = "flash_attention_2"
_SCALED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_ATTENTION_TYPES = {"full_attention", "sliding_attention"}


class CausalLM(LanguageModel):
    """A decoder-only language model with an optional value head, on packed sequences.

    Its module names are those of transformers, so ``state_dict`` has the names of a Hugging Face checkpoint (and
    ``value_head.*``). Dropout is off. How to train it::

        model = get_model(cfg.actor.model)
        packed, is_answer = pack_answers(prompts, answers)
        result = model(packed, temperature=1.0, scored=is_answer)
        result.logprobs[is_answer]      # what the engine reported as logprobs, one answer behind the other

    and within an engine ``engine.forward_backward(batches, Pass(call, use))`` with a ``call(model, batch)`` that calls
    the model it is handed the same way. ``export`` yields what a generation engine loads; adapters are merged in.

    Args:
        cfg: The ``actor.model`` section.
        pretrained: A transformers model with the attention that ``attention_name`` says; taken over.

    Attributes:
        context: Ranks over which the tokens of a pack are split; None for one. Set by the engine.
        predicts_logprobs: Whether it is more than a critic; see ``predict_values_only``.

    Raises:
        ConfigError: The model computes what training here would leave out.
    """

    context: dist.ProcessGroup | None = None
    predicts_logprobs = True

    def __init__(self, cfg: CausalLMConfig, pretrained: Any) -> None:
        super().__init__()
        require_supported(cfg, pretrained)
        self.cfg = cfg
        self.hf_config = pretrained.config
        self.decoder_name: str = pretrained.base_model_prefix
        self.layer_names = set(pretrained._no_split_modules or ())
        head = pretrained.get_output_embeddings()
        self.is_tied = head.weight is pretrained.get_input_embeddings().weight
        if cfg.is_lora:
            add_adapters(pretrained, cfg)
        for name, child in pretrained.named_children():
            if child is head:
                self.head_name = name
            self.add_module(name, LogprobHead(child.weight, child.bias) if child is head else child)
        if ExpertSizes.of(pretrained.config) is not None:
            steer_routers(self._decoder.layers)
        self.value_head: nn.Linear | None = None
        if cfg.add_value_head:
            self.value_head = nn.Linear(head.in_features, 1)
            nn.init.zeros_(self.value_head.weight)
            nn.init.zeros_(self.value_head.bias)

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
        plan, hidden = self._hidden_states(packed, routing)
        has_context = packed.position_ids > 0
        rows = (has_context if scored is None else has_context & scored).nonzero().squeeze(1)
        rows, before_rows = plan.own_rows(rows, packed.previous[rows])
        before = hidden[before_rows]
        if not self.predicts_logprobs:
            return self._values_of(before, rows, plan, packed.num_tokens)
        head: nn.Module = getattr(self, self.head_name)
        # Under sharding the last norm returns float32, in which the largest product of all would be many times slower.
        in_precision = before.to(_HALF[self.cfg.precision]) if self.cfg.precision in _HALF else before
        logprobs, entropy, is_top = head(in_precision, packed.token_ids[rows], temperature, with_top=with_top)
        values = None
        if self.value_head is not None:
            values = self.value_head(before.to(self.value_head.weight.dtype)).squeeze(-1)
            values = plan.whole(values.to(logprobs.dtype), rows, packed.num_tokens)
        return TokenEvaluation(
            logprobs=plan.whole(logprobs, rows, packed.num_tokens),
            entropy=plan.whole(entropy, rows, packed.num_tokens),
            values=values,
            is_top=None if is_top is None else plan.whole(is_top, rows, packed.num_tokens),
        )

    def _values_of(self, before: torch.Tensor, rows: torch.Tensor, plan: TokenPlan, num_tokens: int) -> TokenEvaluation:
        """Return values alone, of the rows that follow some hidden states."""
        assert self.value_head is not None
        head = self.value_head
        values = head(before.to(head.weight.dtype)).squeeze(-1).float()
        zeros = values.new_zeros(num_tokens)
        return TokenEvaluation(zeros, zeros, plan.whole(values, rows, num_tokens))

    def predict_values_only(self) -> None:
        """Leave out log-probabilities and entropies, which then are 0, and what computes them."""
        self.predicts_logprobs = False
        if not self.is_tied:
            getattr(self, self.head_name).requires_grad_(False)

    def shard_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: the decoder layers, and the embeddings at both ends unless they are one."""
        ends = [] if self.is_tied else [self._decoder.get_input_embeddings(), getattr(self, self.head_name)]
        return [*self.recompute_units(), *ends]

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: the decoder layers; the head computes its logits again by itself."""
        # Sharding makes a subclass of a module's class.
        return [m for m in self.modules() if any(cls.__name__ in self.layer_names for cls in type(m).__mro__)]

    def is_training_only(self, name: str) -> bool:
        """See ``TrainableModel``: the value head, and the second name of tied embeddings."""
        return name.startswith("value_head.") or (self.is_tied and name.startswith(f"{self.head_name}."))

    def file_names(self) -> Mapping[str, list[list[str]]]:
        """See ``TrainableModel``."""
        names = {name: [[unadapted_name(name)]] for name in self.state_dict() if unadapted_name(name) != name}
        source = self.weight_source
        return names | (dict(source.stacked()) if isinstance(source, InitialWeights) else {})

    def export(
        self, whole: Callable[[torch.Tensor], torch.Tensor], form: WeightForm = "merged"
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainableModel``; ``merged`` names are those of Hugging Face checkpoints."""
        if not self.cfg.is_lora or form != "merged":
            yield from super().export(whole, form)
            return
        state = {name: tensor for name, tensor in self.state_dict().items() if not self.is_training_only(name)}
        yield from merged(state, self.cfg, whole)

    def without_adapters(self) -> AbstractContextManager[None]:
        """See ``LanguageModel``."""
        return adapters_off(self)

    @property
    def has_value_head(self) -> bool:
        """See ``LanguageModel``."""
        return self.value_head is not None

    @property
    def num_layer_parameters(self) -> int:
        """See ``LanguageModel``."""
        return sum(parameter.numel() for unit in self.recompute_units() for parameter in unit.parameters())

    @property
    def can_share_prompts(self) -> bool:
        """See ``LanguageModel``: FlashAttention knows boundaries alone."""
        return bool(self.hf_config._attn_implementation != _FLASH)

    @property
    def _decoder(self) -> Any:
        return getattr(self, self.decoder_name)

    def _hidden_states(self, packed: PackedSequences, routing: ExpertRouting | None) -> tuple[TokenPlan, torch.Tensor]:
        """Return which tokens the rank has, and their last hidden states [T', H]."""
        plan = plan_tokens(packed, context=self.context, hidden_size=self.hf_config.hidden_size)
        if routing is not None:
            plan.routing = RankRouting(routing, plan.places, scale=self.balance_scale)
        output = self._decoder(
            input_ids=plan.token_ids.unsqueeze(0),
            position_ids=plan.position_ids.unsqueeze(0),
            use_cache=False,
            **({"plan": plan} if self.can_share_prompts else flash_arguments(packed)),
        )
        hidden: torch.Tensor = output.last_hidden_state
        return plan, hidden.squeeze(0)


def build_causal_lm(cfg: CausalLMConfig, *, num_values: int = 1) -> CausalLM:
    """Build what ``model_type: causal_lm`` names, in float32 on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Not used: every token has one value.

    Raises:
        ConfigError: There is no such model, or one that cannot be trained here.
        MissingPackageError: transformers is not installed.
    """
    del num_values
    transformers = require("transformers", needed_by="model_type=causal_lm")
    transformers.AttentionInterface.register(NAME, packed_attention)
    require_model_path(cfg.model_path)
    pretrained = build_on_meta(cfg, attention_name(cfg))
    weights = PretrainedWeights(cfg, pretrained)
    with torch.device("meta"):
        model = CausalLM(cfg, pretrained)
    model.weight_source = InitialWeights(model, weights)
    return model


def attention_name(cfg: CausalLMConfig) -> str:
    """Return the attention that ``attn_implementation`` comes to, as transformers calls it."""
    utils = require("transformers.utils", needed_by="model_type=causal_lm")
    can_flash = cfg.precision != "fp32" and utils.is_flash_attn_2_available()
    if cfg.attn_implementation == "sdpa" or (cfg.attn_implementation == "auto" and not can_flash):
        return NAME
    return _FLASH


def require_supported(cfg: CausalLMConfig, pretrained: Any) -> None:
    """Refuse models whose output the training pass would not reproduce.

    Raises:
        ConfigError: The logits are scaled or capped, the attention takes no mask of which token sees which, or the
            head is no plain linear layer.
    """
    config = pretrained.config.get_text_config()
    settings = config.to_dict()
    scaled = [name for name in _SCALED_LOGITS if settings.get(name) not in {None, 1.0}]
    types = sorted(set(settings.get("layer_types") or ()) - _ATTENTION_TYPES)
    problem = ""
    if scaled:
        problem = f"it scales or caps its logits ({', '.join(scaled)})"
    elif types:
        problem = f"its layers carry a state over packed sequences ({', '.join(types)})"
    elif not pretrained.is_backend_compatible():
        problem = "its attention is not the exchangeable one of transformers"
    elif not isinstance(pretrained.get_output_embeddings(), nn.Linear):
        problem = "its output layer is not a linear layer"
    if problem:
        raise ConfigError(
            f"actor.model.model_path: '{cfg.model_path}' is a {type(pretrained).__name__}, which cannot be trained "
            f"here: {problem}. Models of the families Llama, Mistral, Qwen2 and Qwen3 can."
        )


class InitialWeights:
    """A checkpoint's weights, and the first ones of adapters and of the value head, by the names of ``CausalLM``."""

    def __init__(self, model: CausalLM, pretrained: PretrainedWeights) -> None:
        self._pretrained, self._seed = pretrained, torch.initial_seed()
        self._shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        self._adapter = open_adapter(model.cfg, self._shapes)

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._shapes

    def stacked(self) -> Mapping[str, list[list[str]]]:
        """Return of what the stacked tensors consist; see ``TrainableModel.file_names``."""
        return self._pretrained.stacked()

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows of a tensor, the same on every rank."""
        if name.startswith("value_head."):
            return torch.zeros(self._shapes[name])[begin:end]
        if is_adapter(name) and self._adapter is not None:
            return self._adapter.rows(name, begin, end)
        if is_adapter(name):
            return initial_adapter(name, self._shapes[name], self._seed)[begin:end]
        return self._pretrained.rows(unadapted_name(name), begin, end)
