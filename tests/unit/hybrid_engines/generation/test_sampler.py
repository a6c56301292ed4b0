import numpy as np
import pytest
import torch

from rlinf.data.messages.generation import SamplingParams
from rlinf.hybrid_engines.generation.sampler import Sampler, uniform_numbers
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence, sampling_seed


def sequence(seed: int = 0, **params: object) -> TokenSequence:
    return TokenSequence(
        key=seed,
        request_id="r",
        prompt_ids=(1, 2),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        limit=100,
        end_ids=frozenset({0}),
        seed=sampling_seed(seed),
    )


def test_uniform_numbers_are_uniform_and_independent_of_their_neighbours() -> None:
    seeds = np.arange(20_000, dtype=np.uint64)
    numbers = uniform_numbers(seeds, np.zeros_like(seeds))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert abs(counts - 1000).max() < 150
    later = uniform_numbers(seeds, np.ones_like(seeds))
    assert abs(np.corrcoef(numbers, later)[0, 1]) < 0.03
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
    assert uniform_numbers(seeds[7:8], np.zeros(1, dtype=np.uint64))[0] == numbers[7]


def test_tokens_that_are_left_out_are_never_drawn() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 50).expand(2000, 50).clone()
    sampled = Sampler().sample(logits, [sequence(seed, top_k=3) for seed in range(2000)])
    assert set(sampled.token_ids) == set(logits[0].topk(3).indices.tolist())


def test_a_batch_mixes_all_kinds_of_parameters() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 40).expand(5, 40).clone()
    kinds = [
        sequence(1, temperature=0.0),
        sequence(2, temperature=0.0, top_k=2, min_p=0.5),
        sequence(3, top_p=0.5),
        sequence(4, temperature=2.0),
        sequence(5, min_new_tokens=3),
    ]
    sampled = Sampler().sample(logits.clone(), kinds)
    full = logits[0].log_softmax(-1)
    assert sampled.token_ids[0] == sampled.token_ids[1] == int(full.argmax())
    # TokenFilter has no effect on greedy sequences.
    assert sampled.logprobs[1] == sampled.full_logprobs[1]
    assert sampled.logprobs[2] > sampled.full_logprobs[2]
    assert abs(sampled.logprobs[3] - float((logits[0] / 2).log_softmax(-1)[sampled.token_ids[3]])) < 1e-6
    assert sampled.token_ids[4] != 0


def test_a_seed_beyond_the_last_bit_of_a_total_stays_within_the_vocabulary() -> None:
    """Rounding in a large vocabulary never draws past its end."""
    logits = torch.full((64, 100_000), -20.0)
    logits[:, 0] = 0.0
    sampled = Sampler().sample(logits, [sequence(seed) for seed in range(64)])
    assert all(0 <= token < 100_000 for token in sampled.token_ids)


def test_a_greedy_response_never_takes_a_token_that_is_suppressed() -> None:
    logits = torch.zeros(1, 10)
    logits[0, [0, 4]] = torch.tensor([5.0, 3.0])
    sampled = Sampler().sample(logits, [sequence(temperature=0.0, min_new_tokens=2)])
    assert sampled.token_ids == [4]


@pytest.mark.parametrize("lengths", [(0, 2), (2, 0)])
def test_responses_to_one_prompt_may_end_each_at_its_own_length(lengths: tuple[int, int]) -> None:
    logits = torch.zeros(2, 10)
    logits[:, [0, 4]] = torch.tensor([5.0, 3.0])
    first, second = sequence(1, temperature=0.0, min_new_tokens=2), sequence(2)
    second.params = first.params
    for each, length in zip((first, second), lengths, strict=True):
        each.token_ids.extend([4] * length)
    sampled = Sampler().sample(logits, [first, second])
    assert sampled.token_ids == [0 if length else 4 for length in lengths]


def test_nothing_is_kept_of_responses_that_have_ended() -> None:
    drawer = Sampler()
    drawer.sample(torch.zeros(1, 10), [sequence(3, repetition_penalty=2.0)])
    drawer.forget([3])
    assert not drawer._seen
