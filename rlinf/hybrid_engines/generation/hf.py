"""The ``hf`` engine: a transformers model with continuous batching; runs everywhere, the reference for the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeAlias

import torch

from rlinf.config.schema.base import Precision
from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.data.messages.generation import GenerationRequest, RouteArray
from rlinf.data.prompt_images import Images
from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.in_process_engine import InProcessEngine
from rlinf.hybrid_engines.generation.model_folder import read_model_config
from rlinf.hybrid_engines.generation.model_runner import ModelRunner, RunnerLimits, SampledToken
from rlinf.hybrid_engines.generation.recorded_pass import RecordedPass
from rlinf.hybrid_engines.generation.sampler import Sampler
from rlinf.hybrid_engines.generation.slot_cache import ATTENTION, SlotCache, slot_attention
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.hybrid_engines.generation.vision_model import VisionModel
from rlinf.hybrid_engines.inference_backends import DTYPES
from rlinf.hybrid_engines.weights.bucket import Manifest, check_manifest, take_over
from rlinf.models.language.expert_routing import ExpertSizes, steer_routers
from rlinf.utils.optional import require

_PREFILL_TOKENS = 8192
"""Prompt tokens, padding included, of one forward pass: bounds its memory."""

_ADMISSIONS = 8
"""Prompts are admitted once this part (1/8) of the slots is free: a prefill of few prompts delays running sequences
nearly as much as one of many."""


Context: TypeAlias = "tuple[tuple[int, ...], Images]"
"""Tokens up to now, and the images among them."""


class HFModelRunner(ModelRunner):
    """A causal language model of transformers, one token for each running sequence at a step.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model.
        device: Where to compute.
        precision: Of weights and cache; logits are float32.
        max_context_tokens: Most tokens of a prompt and its response together.
        returns_routes: Whether to record which experts tokens go to.
    """

    def __init__(
        self,
        cfg: HFGenerationConfig,
        *,
        model_path: Path,
        device: torch.device,
        precision: Precision,
        max_context_tokens: int,
        returns_routes: bool = False,
    ) -> None:
        self._model_path = model_path
        self._device = device
        self._dtype = DTYPES[precision]
        self._max_running = cfg.max_running_requests
        self._cache = SlotCache(num_slots=self._max_running, max_tokens=max_context_tokens)
        self._sampler = Sampler()
        self._model: Any = None
        self._vision: VisionModel | None = None
        self._returns_routes = returns_routes
        self._experts: ExpertSizes | None = None
        self._incoming: list[TokenSequence] = []
        self._rows: list[TokenSequence] = []
        self._targets: dict[str, torch.Tensor] = {}
        self._is_lasting = False

    def load(self) -> RunnerLimits:
        """Load the model; see ``ModelRunner``.

        Raises:
            EngineError: The model has layers that the cache is not made for, or no experts whose routes it could
                record.
        """
        transformers = require("transformers", needed_by="rollout_backend=hf")
        config = read_model_config(self._model_path)
        text = config.get("text_config") or config
        layer_types = set(text.get("layer_types") or ["full_attention"])
        if layer_types != {"full_attention"}:
            raise EngineError(
                f"rollout_backend=hf supports full-attention layers only; '{self._model_path}' has "
                f"{', '.join(sorted(layer_types))}. Choose rollout_backend: vllm."
            )
        transformers.AttentionInterface.register(ATTENTION, slot_attention)
        has_vision = "vision_config" in config
        loader = transformers.AutoModelForImageTextToText if has_vision else transformers.AutoModelForCausalLM
        attention = {"": "sdpa", "text_config": ATTENTION, "vision_config": "sdpa"} if has_vision else ATTENTION
        model = loader.from_pretrained(self._model_path, dtype=self._dtype, attn_implementation=attention)
        self._model = model.to(self._device).eval().requires_grad_(False)
        self._vision = VisionModel(self._model, self._model_path) if has_vision else None
        if self._returns_routes:
            self._experts = self._record_experts()
        return RunnerLimits(
            vocab_size=int(model.get_input_embeddings().num_embeddings),
            max_running=self._max_running,
            admission_size=max(1, self._max_running // _ADMISSIONS),
        )

    def _record_experts(self) -> ExpertSizes:
        sizes = ExpertSizes.of(self._model.config)
        if sizes is None:
            raise EngineError(
                f"actor.routing_replay=rollout: '{self._model_path}' is a {self._model.config.model_type}; the routes "
                "that are recorded are those of qwen3_moe. Remove the key."
            )
        steer_routers(self._model.model.layers)
        return sizes

    def check(self, request: GenerationRequest) -> None:
        """Refuse images that the model cannot see; see ``ModelRunner``.

        Raises:
            EngineError: The model reads no images, or the prompt has not been expanded for them.
        """
        if self._vision is not None:
            self._vision.check(request)
        elif request.images:
            raise EngineError(
                f"Request '{request.request_id}': has {len(request.images)} image(s), and the model in "
                f"'{self._model_path}' reads none. Choose actor.model.model_type: vision_lm with another checkpoint."
            )

    def add(self, sequences: Sequence[TokenSequence]) -> None:
        """Admit sequences; see ``ModelRunner``."""
        if self._vision is not None:
            self._vision.admit(sequences)
        self._incoming.extend(sequences)

    @torch.inference_mode()
    def remove(self, keys: Sequence[int]) -> None:
        """Forget sequences; see ``ModelRunner``."""
        gone = set(keys)
        self._sampler.forget(keys)
        if self._vision is not None:
            self._vision.forget(keys)
        self._incoming = [sequence for sequence in self._incoming if sequence.key not in gone]
        row = 0
        while row < len(self._rows):
            if self._rows[row].key not in gone:
                row += 1
                continue
            last = self._rows.pop()
            if row < len(self._rows):
                self._rows[row] = last
                if last.key not in gone:
                    self._cache.move(len(self._rows), row, len(last.prompt_ids) + len(last.token_ids))

    @torch.inference_mode()
    def step(self) -> Iterable[SampledToken]:
        """Compute prompts if there are any, else a token of each running sequence; see ``ModelRunner``."""
        return self._prefill() if self._incoming else self._decode()

    def _prefill(self) -> list[SampledToken]:
        """Compute as many prompts as fit into one pass, each different one once, and sample their first tokens."""
        prompts: dict[Context, int] = {}
        sources: list[int] = []
        width = 0

        def fits(sequence: TokenSequence) -> bool:
            nonlocal width
            context = _context_of(sequence)
            longest = max(width, len(context[0]))
            count = len(prompts) + (context not in prompts)
            if prompts and count * longest > _PREFILL_TOKENS:
                return False
            sources.append(prompts.setdefault(context, len(prompts)))
            width = longest
            return True

        sequences = list(takewhile(fits, self._incoming))
        recorded = self._recorded_pass([len(token_ids) for token_ids, _ in prompts])
        logits, layers = self._compute_prompts(list(prompts), width, recorded)
        places = torch.tensor(sources, device=self._device)
        self._cache.fill(len(self._rows), layers, places)
        self._incoming = self._incoming[len(sequences) :]
        self._rows.extend(sequences)
        routes = None if recorded is None else recorded.routes()
        return self._sample(logits[places], sequences, None if routes is None else [routes[n] for n in sources])

    def _recorded_pass(self, lengths: Sequence[int]) -> RecordedPass | None:
        return None if self._experts is None else RecordedPass.of(self._experts, lengths, device=self._device)

    def _compute_prompts(
        self, prompts: list[Context], width: int, recorded: RecordedPass | None
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return the logits after each prompt, [prompts, V], and the keys and values of each layer.

        Prompts are padded on the right: with causal attention no token sees what comes after it.
        """
        padded = [[*prompt, *[0] * (width - len(prompt))] for prompt, _ in prompts]
        ends = [len(prompt) - 1 for prompt, _ in prompts]
        kept = sorted(set(ends))
        cache = require("transformers", needed_by="rollout_backend=hf").DynamicCache()
        if self._vision is not None:
            hidden = self._vision.prompt_hidden_states(torch.tensor(padded, device=self._device), prompts, cache)
            logits = self._vision.logits(hidden[torch.arange(len(prompts)), ends])
            return logits, [(layer.keys, layer.values) for layer in cache.layers]
        output = self._model(
            input_ids=torch.tensor(padded, device=self._device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=torch.tensor(kept, device=self._device),
            **_planned(recorded),
        )
        columns = torch.tensor([kept.index(end) for end in ends], device=self._device)
        logits = output.logits[torch.arange(len(prompts), device=self._device), columns]
        return logits, [(layer.keys, layer.values) for layer in cache.layers]

    def _decode(self) -> list[SampledToken]:
        lengths = [len(sequence.prompt_ids) + len(sequence.token_ids) for sequence in self._rows]
        positions = torch.tensor(lengths, device=self._device) - 1
        width = max(lengths)
        self._cache.aim(positions, width)
        mask = torch.arange(width, device=self._device) <= positions[:, None]
        # Added to the scores: a mask of bools would be turned into such a one in every layer.
        bias = torch.zeros(mask.shape, dtype=self._dtype, device=self._device).masked_fill_(~mask, -torch.inf)
        last_tokens = torch.tensor([sequence.token_ids[-1] for sequence in self._rows], device=self._device)
        if self._vision is not None:
            logits = self._vision.next_logits(self._rows, positions, bias[:, None, None], self._cache)
            return self._sample(logits, self._rows)
        recorded = self._recorded_pass([1] * len(self._rows))
        output = self._model(
            input_ids=last_tokens[:, None],
            attention_mask=bias[:, None, None],
            position_ids=positions[:, None],
            past_key_values=self._cache,
            use_cache=True,
            **_planned(recorded),
        )
        return self._sample(output.logits[:, -1], self._rows, None if recorded is None else recorded.routes())

    def _sample(
        self, logits: torch.Tensor, sequences: Sequence[TokenSequence], routes: Sequence[RouteArray] | None = None
    ) -> list[SampledToken]:
        sampled = self._sampler.sample(logits.float(), sequences)
        columns = sampled if routes is None else (*sampled, routes)
        return list(map(SampledToken, [sequence.key for sequence in sequences], *columns))

    def begin_update(self, manifest: Manifest) -> None:
        """Compare the manifest with the model; see ``ModelRunner``.

        Raises:
            WeightSyncError: Names or shapes differ.
        """
        self._targets = self._model.state_dict(keep_vars=True)
        self._is_lasting = manifest.is_lasting
        # Of tied weights one name is enough.
        needed = {name for name, _ in self._model.named_parameters()}
        check_manifest(manifest, self._targets, needed)

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy tensors into the model, or make its parameters views of them; see ``ModelRunner``."""
        for name, tensor in weights:
            take_over(self._targets[name], tensor, is_lasting=self._is_lasting)

    def commit(self) -> None:
        """Nothing outlives an update: sequences that were running have been removed; see ``ModelRunner``."""

    def sleep(self) -> bool:
        """Drop the cache, and move weights to the host; see ``ModelRunner``."""
        self._cache.clear()
        self._model.to("cpu")
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return True

    def wake(self) -> None:
        """Move weights back; see ``ModelRunner``."""
        self._model.to(self._device)

    def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return copies of weights; see ``ModelRunner``."""
        state = self._model.state_dict()
        return {name: state[name].to("cpu", copy=True) for name in names}

    def close(self) -> None:
        """Drop model and cache; see ``ModelRunner``."""
        self._cache.clear()
        self._targets = {}
        self._model = self._vision = None


class HFEngine(InProcessEngine):
    """Generates with transformers in this process.

    Args:
        cfg: The ``rollout`` section.
        model_path: Folder with the model and its tokenizer.
        device: Where to compute.
        precision: Of weights and cache.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
        returns_routes: Whether completions have ``routes``.
    """

    def __init__(
        self,
        cfg: HFGenerationConfig,
        *,
        model_path: str | Path,
        device: torch.device,
        precision: Precision,
        seed: int,
        max_context_tokens: int,
        returns_routes: bool = False,
    ) -> None:
        model_runner = HFModelRunner(
            cfg,
            model_path=Path(model_path),
            device=device,
            precision=precision,
            max_context_tokens=max_context_tokens,
            returns_routes=returns_routes,
        )
        super().__init__(
            model_runner, name="hf", model_path=model_path, seed=seed, max_context_tokens=max_context_tokens
        )


def _planned(recorded: RecordedPass | None) -> dict[str, RecordedPass]:
    """Return the arguments of a pass whose routers are recorded; none for any other."""
    return {} if recorded is None else {"plan": recorded}


def _context_of(sequence: TokenSequence) -> Context:
    return tuple(sequence.context), sequence.images
