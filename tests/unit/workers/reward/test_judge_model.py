"""``reward_type: judge`` with a model of its own, whose most likely replies count."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.extraction import reward_of_reply
from rlinf.config.schema.generation import HFGenerationConfig
from rlinf.config.schema.reward import JudgeRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import DatasetError, EngineError
from tests.e2e.tiny_math import load_example

transformers = pytest.importorskip("transformers")
NEW_TOKENS, CONTEXT = 6, 64
REPLIES = {"a": 1.0, "e": 2.0, "i": 3.0, "o": 4.0, "0": 5.0, "1": 6.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("judge")
    load_example("make_tiny_model").make_tiny_model(path, hidden_size=32, num_layers=2, initializer_range=0.3)
    return path


@pytest.fixture
def build(folder: Path) -> Iterator[Any]:
    built: list[Any] = []

    def make(**keys: Any) -> Any:
        given = {"question": "{prompt}|{reference}|{response}", "replies": REPLIES, "invalid_reward": 0.5}
        limits = {"max_new_tokens": NEW_TOKENS, "max_context_tokens": CONTEXT}
        cfg = JudgeRewardConfig(reward_type="judge", model_path=str(folder), **{**given, **limits, **keys})
        built.append(get_reward_class("judge")(cfg))
        return built[-1]

    yield make
    for reward in built:
        reward.close()


def queries(count: int) -> list[RewardQuery]:
    return [RewardQuery(prompt=f"{n}+1?", response=f"it is {n}", reference=n + 1) for n in range(count)]


@torch.no_grad()
def most_likely(folder: Path, query: RewardQuery) -> str:
    """Return what transformers itself replies."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.encode(f"<user>{query.prompt}|{query.reference}|{query.response}<assistant>")
    first = len(ids)
    while len(ids) < first + NEW_TOKENS and ids[-1] != tokenizer.eos_token_id:
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    reply: str = tokenizer.decode(ids[first:], skip_special_tokens=True)
    return reply


@pytest.mark.parametrize("keys", [{"max_running_requests": 3}, {"engine": HFGenerationConfig(rollout_backend="hf")}])
def test_the_reward_is_that_of_the_most_likely_reply(build: Any, folder: Path, keys: dict[str, Any]) -> None:
    asked = queries(8)
    expected = [reward_of_reply(most_likely(folder, query), REPLIES, 0.5) for query in asked]
    assert len(set(expected)) > 1, "the replies differ"
    assert build(**keys)(asked) == expected


def test_several_threads_have_responses_judged_at_a_time(build: Any) -> None:
    reward, asked = build(), queries(6)
    one_by_one = [reward([query])[0] for query in asked]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(lambda query: reward([query])[0], asked)) == one_by_one


def test_a_response_that_the_model_cannot_read_whole_is_an_error(build: Any) -> None:
    with pytest.raises(EngineError, match=f"context of {CONTEXT} tokens"):
        build()([RewardQuery(prompt="?", response="7" * CONTEXT, reference=7)])


def test_a_model_without_a_chat_template_is_refused(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(plain)
    cfg = JudgeRewardConfig(reward_type="judge", model_path=str(plain))
    with pytest.raises(DatasetError, match=r"reward\.rewards\.\*\.model_path: .* has no chat template"):
        get_reward_class("judge")(cfg)
