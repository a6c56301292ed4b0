"""What the ``vllm`` engine adds to vLLM's workers, through its extension points; only vLLM's processes import this.

The one private name of vLLM that is touched is in ``keep_weights_loadable``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import vllm._custom_ops as custom_ops
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from rlinf.hybrid_engines.generation.sampler import TokenFilter, filter_logprobs

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

    def rlinf_begin_update(self) -> None:
        """Forget which weights have been loaded."""
        self.rlinf_loaded = set()

    def rlinf_load_weights(self, weights: list[tuple[str, torch.Tensor]]) -> None:
        """Load tensors; those that vLLM keeps fused (query, key and value, for instance) are put where they belong."""
        loaded = self.model_runner.model.load_weights(iter(weights))
        # Models of an older kind return nothing; missing weights cannot be detected.
        self.rlinf_loaded |= {name for name, _ in self._parameters()} if loaded is None else set(loaded)

    def rlinf_missing_weights(self) -> list[str]:
        """Return the parameters that nothing has been loaded into since the update began."""
        return sorted({name for name, _ in self._parameters()} - self.rlinf_loaded)

    def rlinf_read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return copies of weights on the host, taken out of the fused ones where necessary."""
        return {name: self._read(name).detach().to("cpu", copy=True) for name in names}

    def rlinf_take_offsets(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Return what ``TokenFilterProcessor`` has recorded since the last call."""
        for processor in self.model_runner.input_batch.logitsprocs.all:
            if isinstance(processor, TokenFilterProcessor):
                return processor.take()
        return {}

    def _parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        parameters: Iterable[tuple[str, torch.nn.Parameter]] = self.model_runner.model.named_parameters()
        return parameters

    def _read(self, name: str) -> torch.Tensor:
        parameters = dict(self._parameters())
        if name in parameters:
            return parameters[name]
        model = self.model_runner.model
        for fused, parts in model.packed_modules_mapping.items():
            for index, part in enumerate(parts):
                module_name, found, attribute = name.rpartition(f".{part}.")
                if found:
                    module_name = f"{module_name}.{fused}"
                    sizes = model.get_submodule(module_name).output_sizes
                    first = sum(sizes[:index])
                    return parameters[f"{module_name}.{attribute}"][first : first + sizes[index]]
        raise KeyError(f"The model has no weight '{name}'.")


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
