"""Episodes of several branches: the gradient of an update with every context computed once equals that without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.agents.episode import Episode
from rlinf.agents.episode_groups import make_group
from rlinf.agents.recorder import TokenTree
from rlinf.algorithms.minibatch import MicroBatch
from rlinf.data.messages.generation import Completion
from rlinf.data.messages.responses import Prompt, ResponseBatch
from rlinf.workers.actor.text_samples import TextSamples, make_text_samples
from tests.unit.models.tiny_language_models import save_tiny
from tests.unit.workers.actor import test_text_gradients as gradients
from tests.unit.workers.actor.test_text_gradients import algorithm, difference, gradient

NUM_TOKENS = 3 + 4 + 3 + 4 + 3
"""That the model samples in an episode."""


class Letters:
    """Decodes tokens, in whose texts no test here has an interest."""

    def decode(self, tokens: list[int], **_: Any) -> str:
        return str(tokens)


def make_episode(seed: int) -> Episode:
    """Play turns that continue, cut and rewrite what was there; every prompt has a long context."""
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> list[int]:
        return list(torch.randint(40, (count,), generator=generator).tolist())

    tree = TokenTree()
    prompt = draw(20)
    for number in range(5):
        tokens = draw(3 + number % 2)
        logprobs = (-3.0 - torch.rand(len(tokens), generator=generator)).tolist()
        completion = Completion(
            token_ids=tuple(tokens), logprobs=tuple(logprobs), versions=(0,) * len(tokens), finish_reason="stop"
        )
        tree.commit(tree.begin(prompt), completion)
        whole = [*prompt, *tokens]
        # A tool's result; a history without its last token; the beginning rewritten; a tool's result.
        prompt = [whole + draw(2), whole[:-1] + draw(1), whole[:18] + draw(4), whole + draw(1)][(number + seed) % 4]
    return Episode(trajectories=tree.trajectories(), status="done", outcome=None, transcript=(), metrics={"turns": 5.0})


def make_batch() -> ResponseBatch:
    prompt = Prompt(index=0, token_ids=(1,), text="")
    groups = [
        make_group(prompt, number, [make_episode(seed) for seed in seeds], Letters()).batch
        for number, seeds in enumerate([(0, 1), (2, 3)])
    ]
    batch = ResponseBatch.concat(groups)
    responses = tuple(replace(each, reward=float(n * n)) for n, each in enumerate(batch.responses))
    return replace(batch, responses=responses)


def make_samples(config: Any, dtype: torch.dtype) -> TextSamples:
    batch = make_batch()
    near = [logprobs + 0.1 * logprobs.cos() for logprobs in batch.split(batch.logprobs)]
    samples, _ = make_text_samples(
        batch, algorithm=config, trainer_logprobs=near, ref_logprobs=[logprobs - 0.1 for logprobs in near]
    )
    tokens = {
        name: tuple(t.to(dtype) if t.is_floating_point() else t for t in values)
        for name, values in samples.tokens.items()
    }
    return replace(samples, tokens=tokens)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


@pytest.fixture(autouse=True)
def branched_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradients, "make_samples", make_samples)


def test_what_is_said_of_tokens_that_were_not_sampled_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = algorithm("actor")
    expected = gradient(folder, config)

    def poisoned(config: Any, dtype: torch.dtype) -> TextSamples:
        samples = make_samples(config, dtype)
        masks = samples.tokens["loss_mask"]
        tokens = {
            name: tuple(
                value.masked_fill(~mask, torch.nan) if value.is_floating_point() and name != "advantages" else value
                for value, mask in zip(values, masks, strict=True)
            )
            for name, values in samples.tokens.items()
        }
        return replace(samples, tokens=tokens)

    monkeypatch.setattr(gradients, "make_samples", poisoned)
    assert any(value.isnan().any() for value in poisoned(config, torch.float64).tokens["old_logprobs"])
    assert difference(gradient(folder, config), expected) < 1e-9


def test_contexts_are_shared_and_every_sampled_token_is_trained_once() -> None:
    samples = make_samples(algorithm("actor"), torch.float32)
    count = len(samples.prompts)
    assert samples.num_episodes == 4 < count
    assert sum(int(mask.sum()) for mask in samples.tokens["loss_mask"]) == 4 * NUM_TOKENS
    batch = samples.pack(MicroBatch(torch.arange(count)), torch.device("cpu"), share_prompts=True)
    assert batch.packed.num_tokens < 0.7 * sum(samples.lengths)
    assert int(batch.tokens["loss_mask"].sum()) == 4 * NUM_TOKENS


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 5e-7), (torch.float32, 1e-6)])
def test_contexts_computed_once_or_by_each_branch(folder: Path, dtype: torch.dtype, tolerance: float) -> None:
    config = algorithm("actor")
    expected = gradient(folder, config, dtype, share_prompts=False, max_samples=1)
    for budget in ({"max_tokens": 1000}, {"max_tokens": 120}, {"max_samples": 2}):
        assert difference(gradient(folder, config, dtype, **budget), expected) < tolerance, budget


@pytest.mark.parametrize("loss_type", ["actor", "gspo"])
def test_losses_of_whole_sequences_are_those_of_episodes(folder: Path, loss_type: str) -> None:
    config = algorithm(loss_type, loss_agg_func="seq-mean-token-mean")
    assert config.loss.needs_whole_sequences
    expected = gradient(folder, config, share_prompts=False, max_tokens=2000)
    for budget in ({"max_tokens": 400}, {"max_samples": 1}, {"max_tokens": 2000}):
        assert difference(gradient(folder, config, **budget), expected) < 1e-6, budget


def test_an_episode_weighs_the_same_with_many_branches(folder: Path) -> None:
    """The mean over episodes of the mean over their tokens, by hand: rows of a batch with one episode each."""
    config = algorithm("actor", loss_agg_func="seq-mean-token-mean")
    by_tokens = gradient(folder, algorithm("actor", loss_agg_func="token-mean"))
    # All episodes have equally many tokens of their own: both means are one.
    assert difference(gradient(folder, config), by_tokens) < 1e-6
