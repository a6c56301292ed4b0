"""What every generation engine promises; each test runs against each engine that is installed."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest
import torch
from driven_engine import END_ID, MAX_CONTEXT_TOKENS, PROMPT, DrivenEngine

from rlinf.data.messages.generation import Completion, GenerationResult, SamplingParams
from rlinf.errors import EngineError, WeightSyncError
from tests.unit.hybrid_engines.packing import pack_weights

TOLERANCE = 1e-4
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "temperature 1": {"temperature": 1.0},
    "temperature 0.7": {"temperature": 0.7},
    "top-k": {"temperature": 0.7, "top_k": 12},
    "top-p": {"temperature": 1.0, "top_p": 0.8},
    "min-p": {"temperature": 1.0, "min_p": 0.1},
    "penalty": {"temperature": 0.7, "repetition_penalty": 1.3},
    "greedy with penalty": {"temperature": 0.0, "repetition_penalty": 1.3},
    "all": {"temperature": 0.8, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
}


def error_of(
    driven: DrivenEngine, completion: Completion, params: SamplingParams, prompt: tuple[int, ...] = PROMPT
) -> float:
    """Return the largest difference to the log-probabilities that transformers computes."""
    kept, full = driven.expected(completion, params, prompt)
    error = float((torch.tensor(completion.logprobs, dtype=torch.float64) - kept).abs().max())
    assert (completion.full_logprobs is not None) == params.truncates
    if completion.full_logprobs is not None:
        error = max(error, float((torch.tensor(completion.full_logprobs, dtype=torch.float64) - full).abs().max()))
    return error


def check_all(driven: DrivenEngine) -> None:
    params = [SamplingParams(max_new_tokens=24, ignore_eos=True, **sampling) for sampling in SAMPLINGS.values()]
    requests = [driven.request(**dataclasses.asdict(p)) for p in params]
    for p, result in zip(params, driven.generate(requests), strict=True):
        assert error_of(driven, result.completions[0], p) < TOLERANCE, p


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_logprobs_are_those_of_transformers(driven: DrivenEngine, sampling: dict[str, float]) -> None:
    params = SamplingParams(max_new_tokens=40, ignore_eos=True, **sampling)
    prompts = [PROMPT, PROMPT[:3], (*PROMPT, *range(20, 60))]
    results = driven.generate(driven.request(prompt, **dataclasses.asdict(params)) for prompt in prompts)
    for prompt, result in zip(prompts, results, strict=True):
        (completion,) = result.completions
        assert len(completion.token_ids) == len(completion.logprobs) == len(completion.versions) == 40
        assert error_of(driven, completion, params, prompt) < TOLERANCE


def test_greedy_tokens_are_the_most_likely(driven: DrivenEngine) -> None:
    completion = driven.sequence(temperature=0.0, max_new_tokens=30, ignore_eos=True)
    with torch.no_grad():
        logits = driven.model(torch.tensor([[*PROMPT, *completion.token_ids]])).logits[0]
    best = logits[len(PROMPT) - 1 : -1]
    sampled = best.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    assert torch.all(best.max(-1).values - sampled < TOLERANCE)


def test_draws_follow_the_distribution(driven: DrivenEngine) -> None:
    num = 1500
    (result,) = driven.generate([driven.request(temperature=1.0, max_new_tokens=1, n=num)])
    counts = Counter(completion.token_ids[0] for completion in result.completions)
    with torch.no_grad():
        expected = driven.model(torch.tensor([PROMPT])).logits[0, -1].softmax(-1)
    sampled = torch.tensor([counts[token] / num for token in range(len(expected))])
    # The expected total variation of so many draws is about 0.09 for a flat distribution, and less for any other.
    assert float((sampled - expected).abs().sum() / 2) < 0.13


def test_logprobs_stay_right_over_ten_updates(driven: DrivenEngine) -> None:
    check_all(driven)
    for seed in range(10):
        before = driven.sequence(temperature=0.0, max_new_tokens=16, ignore_eos=True)
        driven.update(seed)
        assert driven.engine.version == driven.next_version - 1
        # The same prompt again: what had been cached of it belongs to the old weights.
        params = SamplingParams(temperature=0.0, max_new_tokens=16, ignore_eos=True)
        after = driven.sequence(**dataclasses.asdict(params))
        assert after.logprobs != before.logprobs
        assert set(after.versions) == {driven.engine.version}
        assert error_of(driven, after, params) < TOLERANCE
    check_all(driven)


def test_an_interrupted_answer_goes_on_with_the_new_weights(driven: DrivenEngine) -> None:
    """Tokens before the update belong to the old weights, those after it to the new ones over the whole context."""
    params = SamplingParams(max_new_tokens=200, ignore_eos=True)
    old_version = driven.engine.version

    async def interrupt() -> list[GenerationResult]:
        requests = [driven.request((*PROMPT, token), **dataclasses.asdict(params)) for token in range(10, 14)]
        tasks = [asyncio.ensure_future(driven.engine.generate(request)) for request in requests]
        await some_tokens(driven, 60)
        await driven.engine.pause("keep")
        num_before = (await driven.engine.stats()).num_generated_tokens
        await driven.load(*driven.new_weights(99))
        assert (await driven.engine.stats()).num_generated_tokens == num_before
        assert not any(task.done() for task in tasks)
        await driven.engine.resume()
        return await asyncio.gather(*tasks)

    results = driven.run(interrupt())
    for token, result in zip(range(10, 14), results, strict=True):
        (completion,) = result.completions
        assert len(completion.token_ids) == 200
        split = completion.versions.count(old_version)
        assert 0 < split < 200
        assert completion.versions == (*[old_version] * split, *[driven.engine.version] * (200 - split))
        kept, _ = driven.expected(completion, params, (*PROMPT, token))
        difference = (torch.tensor(completion.logprobs, dtype=torch.float64) - kept).abs()
        assert float(difference[split:].max()) < TOLERANCE
        assert float(difference[:split].max()) > 10 * TOLERANCE


async def some_tokens(driven: DrivenEngine, number: int) -> None:
    """Wait until so many tokens more have been generated."""
    start = (await driven.engine.stats()).num_generated_tokens
    while (await driven.engine.stats()).num_generated_tokens < start + number:
        await asyncio.sleep(0)


# ---------------------------------------------------------------------------------------------------- sampling fields


def test_temperature_flattens(driven: DrivenEngine) -> None:
    def mean(temperature: float) -> float:
        (result,) = driven.generate([driven.request(temperature=temperature, max_new_tokens=50, n=8, ignore_eos=True)])
        values = [value for completion in result.completions for value in completion.logprobs]
        return sum(values) / len(values)

    assert mean(0.3) > mean(1.0) > mean(2.0)


@pytest.mark.parametrize("field", [{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}])
def test_the_narrowest_choice_is_the_greedy_one(driven: DrivenEngine, field: dict[str, float]) -> None:
    greedy = driven.sequence(temperature=0.0, max_new_tokens=20, ignore_eos=True)
    filter_logprobs = driven.sequence(temperature=1.0, max_new_tokens=20, ignore_eos=True, **field)
    assert filter_logprobs.token_ids == greedy.token_ids
    assert max(map(abs, filter_logprobs.logprobs)) < TOLERANCE
    assert filter_logprobs.full_logprobs == pytest.approx(greedy.logprobs, abs=TOLERANCE)


def test_a_repetition_penalty_avoids_what_has_been_said(driven: DrivenEngine) -> None:
    completion = driven.sequence(temperature=0.0, max_new_tokens=60, ignore_eos=True, repetition_penalty=1000.0)
    assert len(set(completion.token_ids) | set(PROMPT)) > 55
    plain = driven.sequence(temperature=0.0, max_new_tokens=60, ignore_eos=True)
    assert len(set(plain.token_ids)) < len(set(completion.token_ids))


def test_stop_token_ids_end_an_answer_and_stay_part_of_it(driven: DrivenEngine) -> None:
    plain = driven.sequence(temperature=0.0, max_new_tokens=40, ignore_eos=True)
    stop = plain.token_ids[12]
    completion = driven.sequence(temperature=0.0, max_new_tokens=40, ignore_eos=True, stop_token_ids=(stop,))
    end = plain.token_ids.index(stop) + 1
    assert completion.finish_reason == "stop"
    assert completion.token_ids == plain.token_ids[:end]


def test_stop_strings_end_an_answer_and_stay_part_of_it(driven: DrivenEngine) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(driven.model.config._name_or_path)
    plain = driven.sequence(temperature=1.0, seed=5, max_new_tokens=40, ignore_eos=True)
    text = tokenizer.decode(plain.token_ids)
    stop = next(text[start : start + 3] for start in range(20, len(text)) if text[start : start + 3].isascii())
    completion = driven.sequence(temperature=1.0, seed=5, max_new_tokens=40, ignore_eos=True, stop=("never", stop))
    assert completion.finish_reason == "stop"
    assert completion.token_ids == plain.token_ids[: len(completion.token_ids)]
    assert tokenizer.decode(completion.token_ids) == text[: text.index(stop) + 3]


def test_stop_strings_may_span_tokens_that_end_within_a_character(driven: DrivenEngine) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(driven.model.config._name_or_path)
    sampling = {"temperature": 1.0, "max_new_tokens": 60, "ignore_eos": True}
    for seed in range(20):
        plain = driven.sequence(seed=seed, **sampling)
        text = tokenizer.decode(plain.token_ids)
        found = [character for character in text if not character.isascii() and character != UNFINISHED]
        if found:
            break
    completion = driven.sequence(seed=seed, stop=(found[0],), **sampling)
    assert completion.finish_reason == "stop"
    assert completion.token_ids == plain.token_ids[: len(completion.token_ids)]
    ended = tokenizer.decode(completion.token_ids).rstrip(UNFINISHED)
    assert ended.index(found[0]) == len(ended) - 1


def test_the_models_end_token_ends_an_answer_unless_ignored(driven: DrivenEngine) -> None:
    # The end token is sampled with about the probability of any other: enough sequences show one.
    params = {"temperature": 2.0, "max_new_tokens": 60, "n": 40, "seed": 8}
    (ended,) = driven.generate([driven.request(**params)])
    reasons = Counter(c.finish_reason for c in ended.completions)
    assert set(reasons) <= {"stop", "length"}
    assert reasons["stop"] > 0
    for completion in ended.completions:
        assert (completion.token_ids[-1] == END_ID) == (completion.finish_reason == "stop")
        assert END_ID not in completion.token_ids[:-1]
    (ignored,) = driven.generate([driven.request(ignore_eos=True, **params)])
    assert {len(c.token_ids) for c in ignored.completions} == {60}
    assert any(END_ID in c.token_ids for c in ignored.completions)


def test_min_new_tokens_keeps_an_answer_from_ending(driven: DrivenEngine) -> None:
    everything = tuple(range(0, 128, 2))
    params = SamplingParams(
        temperature=1.0, max_new_tokens=40, min_new_tokens=30, stop_token_ids=everything, seed=1, n=8
    )
    (result,) = driven.generate([driven.request(**dataclasses.asdict(params))])
    for completion in result.completions:
        assert all(token % 2 for token in completion.token_ids[:30])
        assert all(token % 2 for token in completion.token_ids[:-1])
        assert (completion.token_ids[-1] % 2 == 0) == (completion.finish_reason == "stop")
        # The full-vocabulary values do not know of the ban, and training can reproduce them.
        _, full = driven.expected(completion, params)
        assert completion.full_logprobs == pytest.approx(full.tolist(), abs=TOLERANCE)
        assert sum(completion.logprobs) > sum(completion.full_logprobs)
    assert any(completion.finish_reason == "stop" for completion in result.completions)


def test_max_new_tokens_and_the_context_bound_an_answer(driven: DrivenEngine) -> None:
    assert driven.sequence(max_new_tokens=1, ignore_eos=True).finish_reason == "length"
    completion = driven.sequence((*PROMPT, *[20] * 200), max_new_tokens=1000, ignore_eos=True)
    assert completion.finish_reason == "length"
    assert len(completion.token_ids) == MAX_CONTEXT_TOKENS - len(PROMPT) - 200


def test_a_seed_makes_draws_repeatable_in_any_company(driven: DrivenEngine) -> None:
    params = {"temperature": 1.0, "max_new_tokens": 30, "ignore_eos": True}
    alone = driven.sequence(seed=4, **params)
    company = [driven.request((*PROMPT, token), max_new_tokens=10 + token) for token in range(20)]
    crowd = driven.generate([*company[:10], driven.request(seed=4, **params), *company[10:]])
    assert crowd[10].completions[0].token_ids == alone.token_ids
    assert driven.sequence(seed=5, **params).token_ids != alone.token_ids
    assert driven.sequence(**params).token_ids != driven.sequence(**params).token_ids


def test_the_answers_to_one_prompt_differ_and_repeat_with_the_seed(driven: DrivenEngine) -> None:
    params = {"temperature": 1.0, "max_new_tokens": 30, "ignore_eos": True, "n": 6, "seed": 2}
    (first,) = driven.generate([driven.request(**params)])
    (second,) = driven.generate([driven.request(**params)])
    sequences = [completion.token_ids for completion in first.completions]
    assert len(set(sequences)) == 6
    assert sequences == [completion.token_ids for completion in second.completions]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_k", 0),
        ("top_p", 0.0),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("max_new_tokens", 0),
        ("min_new_tokens", 500),
        ("stop", ("",)),
        ("stop_token_ids", (5000,)),
        ("n", 0),
    ],
)
def test_a_field_out_of_range_is_refused_by_name(driven: DrivenEngine, field: str, value: object) -> None:
    with pytest.raises(EngineError, match=f"'{field}' is .*allowed"):
        driven.sequence(**{field: value})


@pytest.mark.parametrize("prompt", [(), (5,) * MAX_CONTEXT_TOKENS, (5, 5000), (-1,)])
def test_a_prompt_out_of_range_is_refused(driven: DrivenEngine, prompt: tuple[int, ...]) -> None:
    with pytest.raises(EngineError, match="prompt_ids"):
        driven.sequence(prompt)


# ---------------------------------------------------------------------------------------------------- abort and pause


def test_an_aborted_request_returns_what_it_has(driven: DrivenEngine) -> None:
    params = SamplingParams(max_new_tokens=200, ignore_eos=True)

    async def abort_one() -> list[GenerationResult]:
        requests = [driven.request(**dataclasses.asdict(params)) for _ in range(3)]
        tasks = [asyncio.ensure_future(driven.engine.generate(request)) for request in requests]
        await some_tokens(driven, 30)
        await driven.engine.abort([requests[1].request_id, "unknown"])
        aborted = await tasks[1]
        assert not tasks[0].done()
        return [await tasks[0], aborted, await tasks[2]]

    first, aborted, last = (result.completions[0] for result in driven.run(abort_one()))
    assert (first.finish_reason, aborted.finish_reason, last.finish_reason) == ("length", "abort", "length")
    assert 0 < len(aborted.token_ids) < 200
    assert error_of(driven, aborted, params) < TOLERANCE


@pytest.mark.parametrize("mode", ["abort", "wait", "keep"])
def test_a_pause_stops_all_generation(driven: DrivenEngine, mode: str) -> None:
    async def pause() -> tuple[list[Completion], Completion]:
        tasks = [
            asyncio.ensure_future(driven.engine.generate(driven.request(max_new_tokens=150, ignore_eos=True)))
            for _ in range(3)
        ]
        await some_tokens(driven, 10)
        await driven.engine.pause(mode)  # type: ignore[arg-type]
        before = await driven.engine.stats()
        late = asyncio.ensure_future(driven.engine.generate(driven.request(max_new_tokens=5, ignore_eos=True)))
        for _ in range(20):
            await driven.engine.stats()
        assert (await driven.engine.stats()).num_generated_tokens == before.num_generated_tokens
        assert not late.done()
        assert [task.done() for task in tasks] == [mode != "keep"] * 3
        await driven.engine.resume()
        return [(await task).completions[0] for task in tasks], (await late).completions[0]

    early, late = driven.run(pause())
    assert late.finish_reason == "length"
    assert {c.finish_reason for c in early} == {"abort" if mode == "abort" else "length"}
    assert all(len(c.token_ids) < 150 if mode == "abort" else len(c.token_ids) == 150 for c in early)


def test_a_cancelled_caller_aborts_its_request(driven: DrivenEngine) -> None:
    async def cancel() -> None:
        request = driven.request(max_new_tokens=200, ignore_eos=True)
        task = asyncio.ensure_future(driven.engine.generate(request))
        await some_tokens(driven, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stats = await driven.engine.stats()
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        # Its id is free again.
        again = dataclasses.replace(request, params=SamplingParams(max_new_tokens=3, ignore_eos=True))
        result = await driven.engine.generate(again)
        assert len(result.completions[0].token_ids) == 3

    driven.run(cancel())


def test_an_id_in_use_is_refused(driven: DrivenEngine) -> None:
    async def twice() -> None:
        request = driven.request(max_new_tokens=100, ignore_eos=True)
        task = asyncio.ensure_future(driven.engine.generate(request))
        await some_tokens(driven, 2)
        with pytest.raises(EngineError, match=request.request_id):
            await driven.engine.generate(request)
        assert len((await task).completions[0].token_ids) == 100

    driven.run(twice())


@pytest.mark.timeout(1800)  # of an engine that makes progress; see ``DrivenEngine.generate``
def test_two_hundred_requests_over_64_slots(driven: DrivenEngine) -> None:
    lengths = [1 + (37 * index) % 90 for index in range(200)]
    requests = [
        driven.request((*PROMPT, index % 90 + 5), max_new_tokens=length, ignore_eos=True)
        for index, length in enumerate(lengths)
    ]
    results = driven.generate(requests)
    assert [result.request_id for result in results] == [request.request_id for request in requests]
    assert [len(result.completions[0].token_ids) for result in results] == lengths
    for request, result in list(zip(requests, results, strict=True))[::20]:
        assert error_of(driven, result.completions[0], request.params, request.prompt_ids) < TOLERANCE


def test_prompts_that_do_not_fit_into_one_pass_are_answered_as_when_alone(driven: DrivenEngine) -> None:
    prompts = [tuple(5 + (index + 7 * position) % 90 for position in range(240)) for index in range(40)]
    requests = [driven.request(prompt, max_new_tokens=4, ignore_eos=True, seed=3) for prompt in prompts]
    together = driven.generate(requests)
    for request, result in list(zip(requests, together, strict=True))[::13]:
        (alone,) = driven.generate([driven.request(request.prompt_ids, max_new_tokens=4, ignore_eos=True, seed=3)])
        assert result.completions[0].token_ids == alone.completions[0].token_ids
        assert error_of(driven, result.completions[0], request.params, request.prompt_ids) < TOLERANCE


# ---------------------------------------------------------------------------------------------------- weights


def test_a_missing_bucket_is_refused_and_the_engine_with_it(driven: DrivenEngine) -> None:
    manifest, buckets = driven.new_weights(1)
    assert len(buckets) > 2

    async def incomplete() -> None:
        await driven.engine.begin_update(manifest)
        await driven.engine.load_bucket(0, buckets[0])
        await driven.engine.commit()

    version = driven.engine.version
    with pytest.raises(WeightSyncError, match="missing: 1"):
        driven.run(incomplete())
    assert driven.engine.version == version
    with pytest.raises(EngineError, match="incomplete"):
        driven.sequence()
    with pytest.raises(EngineError, match="incomplete"):
        driven.run(driven.engine.health())
    driven.run(driven.load(manifest, buckets))
    assert driven.sequence(max_new_tokens=2, ignore_eos=True).versions == (manifest.version,) * 2


def test_a_damaged_bucket_is_refused_and_may_be_sent_again(driven: DrivenEngine) -> None:
    manifest, buckets = driven.new_weights(2)

    async def damaged() -> None:
        await driven.engine.begin_update(manifest)
        wrong = buckets[1].clone()
        wrong[100] += 1
        with pytest.raises(WeightSyncError, match="checksum"):
            await driven.engine.load_bucket(1, wrong)
        for index, bucket in reversed(list(enumerate(buckets))):
            await driven.engine.load_bucket(index, bucket)
        await driven.engine.commit()

    driven.run(damaged())
    params = SamplingParams(max_new_tokens=20, ignore_eos=True)
    assert error_of(driven, driven.sequence(**dataclasses.asdict(params)), params) < TOLERANCE


def test_an_older_version_is_refused(driven: DrivenEngine) -> None:
    older, _ = driven.present_weights()
    driven.update(3)
    with pytest.raises(WeightSyncError, match=f"version {older.version} arrived after"):
        driven.run(driven.engine.begin_update(older))
    assert driven.sequence(max_new_tokens=1).versions == (driven.engine.version,)


def test_an_update_of_some_weights_leaves_the_others_as_they_are(driven: DrivenEngine) -> None:
    driven.update(20)
    assert driven.engine.is_synced
    changed = ("self_attn.q_proj.weight", "self_attn.v_proj.weight", "mlp.down_proj.weight")
    generator = torch.Generator().manual_seed(21)
    weights = {name: tensor for name, tensor in driven.model.named_parameters() if name.endswith(changed)}
    with torch.no_grad():
        for tensor in weights.values():
            tensor.add_(0.03 * torch.randn(tensor.shape, generator=generator))
    version, driven.next_version = driven.next_version, driven.next_version + 1
    manifest, buckets = pack_weights(weights.items(), version=version, bucket_bytes=50_000)
    others = tuple(name for name, _ in driven.model.named_parameters() if name not in weights)
    driven.run(driven.load(dataclasses.replace(manifest, left_out=others), buckets))
    assert driven.engine.version == version
    check_all(driven)


def test_no_update_while_requests_are_generated(driven: DrivenEngine) -> None:
    async def during() -> GenerationResult:
        request = driven.request(max_new_tokens=150, ignore_eos=True)
        task = asyncio.ensure_future(driven.engine.generate(request))
        await some_tokens(driven, 2)
        with pytest.raises(WeightSyncError, match="pause"):
            await driven.engine.begin_update(driven.present_weights()[0])
        return await task

    assert len(driven.run(during()).completions[0].token_ids) == 150


def test_calls_without_an_update_are_refused(driven: DrivenEngine) -> None:
    with pytest.raises(WeightSyncError, match="begin_update"):
        driven.run(driven.engine.load_bucket(0, torch.zeros(4, dtype=torch.uint8)))
    with pytest.raises(WeightSyncError, match="begin_update"):
        driven.run(driven.engine.commit())


def test_a_request_during_an_update_waits_for_the_new_weights(driven: DrivenEngine) -> None:
    async def during() -> Completion:
        manifest, buckets = driven.new_weights(7)
        await driven.engine.begin_update(manifest)
        task = asyncio.ensure_future(driven.engine.generate(driven.request(max_new_tokens=4, ignore_eos=True)))
        for index, bucket in enumerate(buckets):
            await driven.engine.load_bucket(index, bucket)
        assert not task.done()
        await driven.engine.commit()
        return (await task).completions[0]

    assert driven.run(during()).versions == (driven.engine.version,) * 4


def test_weights_of_another_model_are_refused(driven: DrivenEngine) -> None:
    weights = dict(driven.model.named_parameters())
    weights.pop("model.layers.1.mlp.down_proj.weight")
    manifest, buckets = pack_weights(weights.items(), version=driven.next_version, bucket_bytes=1 << 20)
    with pytest.raises(WeightSyncError, match=r"down_proj"):
        driven.run(driven.load(manifest, buckets))


def test_weights_can_be_read_back(driven: DrivenEngine) -> None:
    driven.update(12)
    weights = dict(driven.model.named_parameters())
    read = driven.run(driven.engine.read_weights(list(weights)))
    if read is None:
        pytest.skip("this engine cannot read its weights")
    for name, weight in weights.items():
        assert torch.equal(read[name], weight.detach()), name


def test_sleep_and_wake(driven: DrivenEngine) -> None:
    async def sleep() -> Completion:
        await driven.engine.pause("keep")
        await driven.engine.sleep()
        task = asyncio.ensure_future(driven.engine.generate(driven.request(max_new_tokens=4, ignore_eos=True)))
        await driven.engine.stats()
        assert not task.done()
        await driven.engine.wake()
        await driven.load(*driven.new_weights(21))
        await driven.engine.resume()
        return (await task).completions[0]

    completion = driven.run(sleep())
    params = SamplingParams(max_new_tokens=4, ignore_eos=True)
    assert error_of(driven, completion, params) < TOLERANCE
