"""What the ``vllm`` engine adds to vLLM's workers, through its extension points; only vLLM's processes import this.

The one private name of vLLM that is touched is in ``keep_weights_loadable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import vllm._custom_ops as custom_ops
from vllm.distributed import get_pp_group, get_tensor_model_parallel_rank
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from rlinf.hybrid_engines.generation.sampler import TokenFilter, filter_logprobs
from rlinf.hybrid_engines.generation.weight_shards import Shard, WeightPart, find_parts

REQUEST_KEY = "rlinf"
"""Name in ``SamplingParams.extra_args`` of what ``TokenFilterProcessor`` needs to know of a request."""


def keep_weights_loadable() -> None:
    """Keep linear layers on the CPU from being packed into oneDNN handles.

    Packed weights are a copy: weights that are loaded later never reach it. There is no public switch; a slow test
    fails when it is no longer needed.
    """
    custom_ops._supports_onednn = False


class WeightExtension:
    """Mixed into vLLM's workers (``worker_extension_cls``): weights by the names of Hugging Face's format."""

    model_runner: Any
    rlinf_loaded: set[str]
    rlinf_expected: set[str]

    def rlinf_make_buffers(self) -> None:
        """Make the memory that a later pipeline stage receives into; vLLM makes it in a warm-up, except on CPUs."""
        runner = self.model_runner
        if runner.intermediate_tensors is None and not get_pp_group().is_first_rank:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens, dtype=runner.model_config.dtype, device=runner.device
            )

    def rlinf_begin_update(self) -> None:
        """Forget which weights have been loaded; quantised ones get their places in the checkpoint's precision back."""
        if self._is_quantised():
            initialize_layerwise_reload(self.model_runner.model)
        self.rlinf_loaded = set()
        self.rlinf_expected = {name for name, _ in self._parameters()}

    def rlinf_load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        """Load tensors; those that vLLM keeps fused (query, key and value, for instance) are put where they belong."""
        if self._is_quantised():
            # vLLM keeps them until it has all of a layer, and the sender's memory is then used for others.
            weights = [(name, tensor.clone()) for name, tensor in weights]
        loaded = self.model_runner.model.load_weights(iter(weights))
        # Models of an older kind return nothing; missing weights cannot be detected.
        self.rlinf_loaded |= self.rlinf_expected if loaded is None else set(loaded)

    def rlinf_missing_weights(self) -> list[str]:
        """Return the parameters that nothing has been loaded into since the update began."""
        return sorted(self.rlinf_expected - self.rlinf_loaded)

    def rlinf_end_update(self) -> None:
        """Quantise what has been loaded."""
        if self._is_quantised():
            finalize_layerwise_reload(self.model_runner.model, self.model_runner.model_config)

    def _is_quantised(self) -> bool:
        return self.model_runner.model_config.quantization is not None

    def rlinf_read_weights(self, names: Sequence[str]) -> dict[str, Shard]:
        """Return copies of this worker's shards of weights, taken out of the fused ones where necessary.

        Raises:
            KeyError: Without pipeline stages: the model has no such weight.
        """
        model = self.model_runner.model
        parts = find_parts(model, names, model.packed_modules_mapping)
        found = {name: self._shard(part) for name, part in zip(names, parts, strict=True)}
        if get_pp_group().world_size == 1 and None in found.values():
            raise KeyError(f"The model has no weight '{next(name for name, shard in found.items() if shard is None)}'.")
        return {name: shard for name, shard in found.items() if shard is not None}

    def rlinf_take_offsets(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Return what ``TokenFilterProcessor`` has recorded since the last call."""
        for processor in self.model_runner.input_batch.logitsprocs.all:
            if isinstance(processor, TokenFilterProcessor):
                return processor.take()
        return {}

    def _parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        parameters: Iterable[tuple[str, torch.nn.Parameter]] = self.model_runner.model.named_parameters()
        return parameters

    def _shard(self, part: WeightPart | None) -> Shard | None:
        if part is None:
            return None
        is_copy = part.dim is not None and get_tensor_model_parallel_rank() % part.num_copies != 0
        return Shard(
            stage=get_pp_group().rank_in_group,
            dim=part.dim,
            # A vocabulary is padded to a round number of rows.
            num_rows=getattr(part.module, "org_vocab_size", None),
            tensor=None if is_copy else part.tensor.detach().to("cpu", copy=True),
        )


class TokenFilterProcessor(LogitsProcessor):  # type: ignore[misc]
    """Filters tokens in vLLM's sampler, and records what that does to log-probabilities.

    vLLM's own top-k, top-p, min-p and min-tokens renormalise, and say nothing of the full vocabulary. Here the
    probability that is kept is known, and with it the difference between both log-probabilities, for any token.

    Args:
        vllm_config: Not needed.
        device: Where the model is.
        is_pin_memory: Not needed.
    """

    def __init__(self, vllm_config: object, device: torch.device, is_pin_memory: bool) -> None:
        # Every worker makes this object before it loads the model, which is when the switch must have been set.
        if device.type == "cpu":
            keep_weights_loadable()
        self._rows: dict[int, _Row] = {}
        self._offsets: dict[tuple[int, int], tuple[float, float]] = {}

    def is_argmax_invariant(self) -> bool:
        """Come after temperature, and not at all in batches of greedy requests alone."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests as they enter, leave and move within the batch."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self._rows.pop(index, None)
        for index, params, _, output_ids in batch_update.added:
            extra = (params.extra_args or {}).get(REQUEST_KEY)
            self._rows.pop(index, None)
            if extra is not None:
                self._rows[index] = _Row(output_ids=output_ids, **extra)
        for source, target, direction in batch_update.moved:
            moved, replaced = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if replaced is not None and direction == MoveDirectionality.SWAP:
                self._rows[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Filter the rows that have a filter, [N, V]."""
        if not self._rows:
            return logits
        indices, rows = list(self._rows), list(self._rows.values())
        full = logits[indices].log_softmax(-1)
        filtered = filter_logprobs(full, [row.token_filter() for row in rows])
        kept = filtered.logsumexp(-1)
        best = filtered.argmax(-1, keepdim=True)
        best_full = full.gather(1, best)[:, 0]
        noted = torch.stack([kept, best_full - kept, best_full]).T.tolist()
        for index, (row, (log_kept, greedy, greedy_full)) in enumerate(zip(rows, noted, strict=True)):
            offsets = (greedy, greedy_full) if row.greedy else (0.0, log_kept)
            self._offsets[row.key, len(row.output_ids)] = offsets
            if row.greedy:
                only = filtered[index, best[index]].clone()
                filtered[index] = -torch.inf
                filtered[index, best[index]] = only
        logits[indices] = filtered
        return logits

    def take(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Return what has been recorded since the last call.

        Returns:
            By request and number of the token: what to add to vLLM's log-probability for that of the filtered
            distribution, and for that over the full vocabulary.
        """
        offsets, self._offsets = self._offsets, {}
        return offsets


class _Row:
    """A request in the batch; made of what ``VLLMModelRunner`` puts into ``extra_args``.

    Args:
        output_ids: Its tokens so far; vLLM goes on adding to the list.
        key: Of the sequence.
        top_k: See ``TokenFilter``.
        top_p: See ``TokenFilter``.
        min_p: See ``TokenFilter``.
        suppressed: Tokens that are suppressed at first.
        num_suppressed: Number of tokens for which they are.
        greedy: Take the most likely remaining token.
    """

    def __init__(
        self,
        *,
        output_ids: list[int],
        key: int,
        top_k: int,
        top_p: float,
        min_p: float,
        suppressed: Sequence[int],
        num_suppressed: int,
        greedy: bool,
    ) -> None:
        self.output_ids = output_ids
        self.key = key
        self.greedy = greedy
        self._num_suppressed = num_suppressed
        self._suppressing = TokenFilter(tuple(suppressed), top_k, top_p, min_p)
        self._free = TokenFilter((), top_k, top_p, min_p)

    def token_filter(self) -> TokenFilter:
        """Return the filter of the next token."""
        return self._suppressing if len(self.output_ids) < self._num_suppressed else self._free
