"""The ``hf`` engine on prompts with images: log-probabilities are those of transformers on one sequence at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from driven_engine import make_engine

from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.data.prompt_images import ImageProcessor, Images
from rlinf.errors import EngineError
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture, stock_logprobs

ONE, OTHER, WIDE = picture(3), picture(5), picture(2, size=(140, 90))


class Served:
    """An engine, with what it should say."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForImageTextToText

        self.processor = ImageProcessor(str(folder))
        self.reference = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="sdpa").eval()
        self.engine = make_engine("hf", folder, max_running_requests=3)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.engine.start())

    def request(self, name: str, prompt: list[int], images: Images, **params: Any) -> GenerationRequest:
        ids = self.processor.expand([self.processor.token_id if token < 0 else token for token in prompt], images)
        settings = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3, **params}
        return GenerationRequest(request_id=name, prompt_ids=ids, images=images, params=SamplingParams(**settings))

    def generate(self, requests: list[GenerationRequest]) -> list[list[Completion]]:
        async def everything() -> list[Any]:
            return await asyncio.gather(*map(self.engine.generate, requests))

        return [list(result.completions) for result in self.loop.run_until_complete(everything())]

    @torch.no_grad()
    def check(self, request: GenerationRequest, completion: Completion) -> None:
        expected = stock_logprobs(
            self.reference, self.processor, request.prompt_ids, request.images, completion.token_ids
        )
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = Served(make_tiny_vision_model(tmp_path_factory.mktemp(request.param), family=request.param))
    yield found
    found.loop.run_until_complete(found.engine.close())
    found.loop.close()


def test_every_prompt_sees_its_own_images(served: Served) -> None:
    requests = [
        served.request("a", [5, -1, 7], (ONE,), n=2),
        served.request("b", [5, -1, 7], (OTHER,)),  # the same tokens
        served.request("c", [5, 6, -1, 8, -1], (WIDE, ONE)),
        served.request("d", [9, 10], ()),
    ]
    for request, completions in zip(requests, served.generate(requests), strict=True):
        for completion in completions:
            assert len(completion.token_ids) == 12
            served.check(request, completion)


def test_a_prompt_whose_placeholders_are_not_its_images_is_refused(served: Served) -> None:
    good = served.request("e", [5, -1, 7], (ONE,))
    wrong = GenerationRequest(request_id="f", prompt_ids=good.prompt_ids[:-3], images=(ONE,), params=good.params)
    with pytest.raises(EngineError, match=r"'f'.*14 image placeholders.*16 tokens"):
        served.generate([wrong])
    broken = GenerationRequest(request_id="g", prompt_ids=good.prompt_ids, images=(b"abc",), params=good.params)
    with pytest.raises(EngineError, match=r"'g'.*cannot be read"):
        served.generate([broken])
    ((completion,),) = served.generate([good])
    served.check(good, completion)


def test_a_model_without_images_refuses_them(tiny_model: Path) -> None:
    engine = make_engine("hf", tiny_model)
    request = GenerationRequest(request_id="h", prompt_ids=(5, 6), images=(ONE,), params=SamplingParams())

    async def ask() -> None:
        await engine.start()
        try:
            await engine.generate(request)
        finally:
            await engine.close()

    with pytest.raises(EngineError, match=r"1 image\(s\).*vision_lm"):
        asyncio.run(ask())
