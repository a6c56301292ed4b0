"""What the ``sglang`` engine adds to SGLang's scheduler, through its extension point; SGLang's processes import it."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.distributed.parallel_state import get_tensor_model_parallel_rank
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

from rlinf.data.messages.generation import SamplingParams
from rlinf.hybrid_engines.generation.sampler import Sampler
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.hybrid_engines.generation.weight_shards import find_parts, part_of

SAMPLED = "rlinf_sampled"
"""Name under which each token and both its log-probabilities travel back, next to SGLang's own."""


_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Layers that SGLang computes together, and the checkpoint's names of their parts."""


def copy_weights_out(model: torch.nn.Module, targets: list[tuple[str, torch.Tensor]]) -> None:
    """Copy weights into tensors that another process shares; SGLang calls it in place of a loader.

    Every rank of a tensor-parallel engine copies its own part.

    Args:
        model: SGLang's.
        targets: Names of the checkpoint and tensors for the whole weights. Those whose weight is not found are left as
            they are: an error here would end SGLang.
    """
    parts = find_parts(model, [name for name, _ in targets], _FUSED)
    for (_, target), found in zip(targets, parts, strict=True):
        if found is not None:
            index = get_tensor_model_parallel_rank() // found.num_copies
            part = part_of(target, size=found.tensor.shape[found.dim or 0], dim=found.dim, index=index)
            own = found.tensor[tuple(map(slice, part.shape))]
            if own.shape == part.shape:
                part.copy_(own.detach())


class SamplerProcessor(CustomLogitProcessor):  # type: ignore[misc]
    """Samples tokens as the ``hf`` engine does, and leaves SGLang's sampler only the sampled token.

    SGLang's own sampler reports the full vocabulary's log-probabilities only, knows seeds only in its deterministic
    mode, penalises no token for being in the prompt, and cannot suppress some of the end tokens. Requests that need
    none of this do not come here.
    """

    def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> torch.Tensor:
        """Sample a token for each row.

        Args:
            logits: [N, V].
            custom_param_list: What ``SGLangModelRunner`` sent with each request, and SGLang's record of it.

        Returns:
            Logits that leave one token, [N, V].
        """
        assert custom_param_list is not None
        records = [_record(params) for params in custom_param_list]
        sequences = [
            _sequence(row, params, record)
            for row, (params, record) in enumerate(zip(custom_param_list, records, strict=True))
        ]
        sampled = Sampler().sample(logits.float(), sequences)
        for record, *values in zip(records, *sampled, strict=True):
            record.append(values)
        tokens = torch.tensor(sampled.token_ids, device=logits.device)[:, None]
        return torch.full_like(logits, -torch.inf).scatter_(1, tokens, 0.0)


def _record(params: dict[str, Any]) -> list[list[Any]]:
    """Return the list of a request's sampled tokens, which travels back with SGLang's output."""
    request = params["__req__"]
    if request.customized_info is None:
        request.customized_info = {}
    record: list[list[Any]] = request.customized_info.setdefault(SAMPLED, [])
    return record


def _sequence(row: int, params: dict[str, Any], record: list[list[Any]]) -> TokenSequence:
    # The tokens so far: those that SGLang was given, and those sampled since.
    given = list(params["__req__"].origin_input_ids)
    split = len(given) - params["num_before"]
    return TokenSequence(
        key=row,
        request_id="",
        prompt_ids=tuple(given[:split]),
        params=SamplingParams(
            temperature=params["temperature"],
            top_k=params["top_k"],
            top_p=params["top_p"],
            min_p=params["min_p"],
            repetition_penalty=params["repetition_penalty"],
            min_new_tokens=params["min_new_tokens"],
        ),
        limit=0,
        end_ids=frozenset(params["end_ids"]),
        seed=params["seed"],
        token_ids=[*given[split:], *(values[0] for values in record)],
    )
