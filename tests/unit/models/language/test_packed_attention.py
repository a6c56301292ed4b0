"""Attention over packed sequences: each sees itself and the prompt it shares."""

from pathlib import Path
from typing import Any

import pytest
import torch
from packed_expectations import expectation

from rlinf.data.packing import pack_responses, pack_sequences
from rlinf.errors import AlgorithmError
from rlinf.models import get_model
from rlinf.models.language.packed_attention import packed_attention, plan_attention
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

SEQUENCES = [[5, 6, 7, 8, 9, 10], [1], [3, 4, 5, 6, 7, 8, 9, 11, 12, 33], [2, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 31]]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_sequences_do_not_see_each_other(tiny: tuple[Path, Any], temperature: float) -> None:
    folder, reference = tiny
    packed = pack_sequences(SEQUENCES)
    result = get_model(tiny_config(folder)).double()(packed, temperature=temperature)
    for start, sequence in zip(packed.boundaries, SEQUENCES, strict=False):
        assert result.logprobs[start] == result.entropy[start] == 0
        own = slice(start + 1, start + len(sequence))
        logprobs, entropy = expectation(reference, sequence, temperature)
        torch.testing.assert_close(result.logprobs[own], logprobs, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(result.entropy[own], entropy, rtol=1e-9, atol=1e-9)
    assert result.values is None


def test_sliding_windows_are_kept(tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "num_hidden_layers": 2}
    reference = save_tiny(tmp_path, **window).double()
    packed = pack_sequences(SEQUENCES)
    result = get_model(tiny_config(tmp_path)).double()(packed)
    last = slice(packed.boundaries[4] + 1, packed.boundaries[5])
    torch.testing.assert_close(result.logprobs[last], expectation(reference, SEQUENCES[4])[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [{}, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}])
def test_answers_know_the_prompt_that_they_share_and_not_each_other(
    tmp_path: Path, window: dict[str, bool | int]
) -> None:
    reference = save_tiny(tmp_path, num_hidden_layers=2, **window).double()
    prompts = [[3, 4, 5, 6, 7, 8], [9, 10], [3, 4, 5, 6, 7, 8], [9, 10], [3, 4, 5, 6, 7, 8]]
    answers = [[11, 12, 13], [14], [15, 16, 17, 18, 19], [20, 21], [22]]
    packed, is_response = pack_responses(prompts, answers, share_prompts=True)
    assert packed.num_tokens == 8 + 12
    result = get_model(tiny_config(tmp_path)).double()(packed, scored=is_response)
    parts = torch.split(result.logprobs[is_response], list(map(len, answers)))
    for prompt, answer, part in zip(prompts, answers, parts, strict=True):
        expected = expectation(reference, prompt + answer)[0][-len(answer) :]
        torch.testing.assert_close(part, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [{}, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}])
def test_branches_attend_with_their_own_tokens_alone(tmp_path: Path, window: dict[str, bool | int]) -> None:
    """Long contexts that branches share: values and gradients are those of single sequences."""
    save_tiny(tmp_path, num_hidden_layers=2, **window)
    generator = torch.Generator().manual_seed(0)
    context = torch.randint(3, 40, (130,), generator=generator).tolist()
    prompts = [context[:70], context[:90] + [1], context, context[:110] + [2] * 5, [4] * 80, [4] * 80]
    answers = [[5] * 30, [6, 7, 8], list(range(3, 33)), [9] * 25, [10] * 20, [11] * 24]
    model = get_model(tiny_config(tmp_path)).double()
    gradients, found = [], []
    for shares in (True, False):
        packed, is_response = pack_responses(prompts, answers, share_prompts=shares)
        own = [each.attending is not None for each in plan_attention(packed).rectangles]
        assert any(own) == shares
        model.zero_grad()
        logprobs = model(packed, scored=is_response).logprobs[is_response]
        logprobs.square().sum().backward()
        found.append(logprobs.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-9)
    # The norms of transformers compute in float32.
    assert (gradients[0] - gradients[1]).norm() < 5e-7 * gradients[1].norm()


def test_the_attention_cannot_be_used_without_its_plan(tiny: tuple[Path, Any]) -> None:
    folder, _ = tiny
    model = get_model(tiny_config(folder))
    with pytest.raises(AlgorithmError, match="not called by CausalLM"):
        model.model(input_ids=torch.tensor([[1, 2]]))


def test_scores_are_scaled_as_the_layer_says(tiny: tuple[Path, Any]) -> None:
    packed = pack_sequences([[1, 2, 3], [4, 5]])
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    found, _ = packed_attention(torch.nn.Identity(), query, key, value, None, plan=plan_attention(packed), scaling=0.9)
    for part in (slice(0, 3), slice(3, 5)):
        scores = 0.9 * query[0, :, part] @ key[0, :, part].transpose(1, 2)
        length = part.stop - part.start
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        expected = (scores.softmax(-1) @ value[0, :, part]).transpose(0, 1)
        torch.testing.assert_close(found[0, part], expected)
