"""What the ``sglang`` engine adds to SGLang's scheduler, through its extension point; SGLang's processes import it."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

from rlinf.data.generation import SamplingParams
from rlinf.hybrid_engines.generation.answers import Answer
from rlinf.hybrid_engines.generation.drawing import Drawer

DRAWN = "rlinf_drawn"
"""Name under which each token and both its log-probabilities travel back, beside SGLang's own."""


class OwnDrawer(CustomLogitProcessor):  # type: ignore[misc]
    """Draws tokens as the ``hf`` engine does, and leaves SGLang's sampler nothing but what was drawn.

    SGLang's own sampler reports the full vocabulary's log-probabilities only, knows seeds only in its deterministic
    mode, penalises no token for being in the prompt, and cannot keep some of the end tokens from being drawn. Requests
    that need none of this do not come here.
    """

    def __call__(self, logits: torch.Tensor, custom_param_list: list[dict[str, Any]] | None = None) -> torch.Tensor:
        """Draw a token for each row.

        Args:
            logits: [N, V].
            custom_param_list: What ``SGLangBackend`` sent with each request, and SGLang's record of it.

        Returns:
            Logits that leave one token, [N, V].
        """
        assert custom_param_list is not None
        records = [_record(params) for params in custom_param_list]
        answers = [
            _answer(row, params, record)
            for row, (params, record) in enumerate(zip(custom_param_list, records, strict=True))
        ]
        drawn = Drawer().draw(logits.float(), answers)
        for record, *values in zip(records, *drawn, strict=True):
            record.append(values)
        tokens = torch.tensor(drawn.token_ids, device=logits.device)[:, None]
        return torch.full_like(logits, -torch.inf).scatter_(1, tokens, 0.0)


def _record(params: dict[str, Any]) -> list[list[Any]]:
    """Return the list of what has been drawn for a request, which travels back with its tokens."""
    request = params["__req__"]
    if request.customized_info is None:
        request.customized_info = {}
    record: list[list[Any]] = request.customized_info.setdefault(DRAWN, [])
    return record


def _answer(row: int, params: dict[str, Any], record: list[list[Any]]) -> Answer:
    # The answer so far is what SGLang was given of it and what has been drawn since.
    given = list(params["__req__"].origin_input_ids)
    split = len(given) - params["num_before"]
    return Answer(
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
