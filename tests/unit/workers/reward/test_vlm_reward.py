"""Which images a model is shown and when, what its reply is worth, and that it is the model's own."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import VLMRewardConfig
from rlinf.data.messages.embodied import ChunkStep
from rlinf.data.messages.rewards import RewardRequest
from rlinf.data.prompt_images import Images
from rlinf.errors import EngineError, RewardError
from rlinf.workers.reward.vlm_reward import VLMReward
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture, stock_logits

Asked = list[tuple[str, list[int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_vision_model(tmp_path_factory.mktemp("model"), num_layers=1)


@pytest.fixture
def build(folder: Path) -> Iterator[Any]:
    built: list[VLMReward] = []

    def make(**keys: Any) -> VLMReward:
        cfg = VLMRewardConfig(**{"reward_type": "vlm", "model_path": str(folder), "question": "Is it done?", **keys})
        reward = get_reward_class("vlm")(cfg)
        assert isinstance(reward, VLMReward)
        built.append(reward)
        return reward

    yield make
    for reward in built:
        reward.close()


def gray(image: bytes) -> int:
    """Return the value of an image's first pixel."""
    with Image.open(io.BytesIO(image)) as opened:
        pixel = opened.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return int(pixel[0])


def chunk(
    main: Sequence[int], *, starts: Sequence[bool], wrist: Sequence[int] = (), rests: Sequence[int] = ()
) -> RewardRequest:
    """Return a chunk of two actions after which the cameras of the environments show these grays."""

    def images(values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 28, 28, 3)

    executed = torch.ones(len(main), 2, dtype=torch.bool)
    executed[list(rests)] = False
    obs: dict[str, Any] = {"main_images": images(main), "task_descriptions": [f"task {i}" for i in range(len(main))]}
    if wrist:
        obs["wrist_images"] = images(wrist)
    none = torch.zeros_like(executed)
    step = ChunkStep(obs=obs, rewards=none.float(), terminations=none, truncations=none, executed=executed)
    return RewardRequest.from_step(step, torch.zeros(len(main), 2, 1), first_env=6, starts=torch.tensor(starts))


def listen(reward: VLMReward, monkeypatch: pytest.MonkeyPatch, reply: str) -> Asked:
    """Have the model reply the same each time; return what it will have been asked, images as grays."""
    asked: Asked = []

    def replies(questions: Sequence[tuple[str, Images]]) -> list[str]:
        asked.extend((text, [gray(image) for image in images]) for text, images in questions)
        return [reply] * len(questions)

    monkeypatch.setattr(reward.engine, "replies", replies)
    return asked


def test_the_model_sees_the_last_images_of_the_episode(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = build(history_size=2, image_keys=["main_images", "wrist_images"], replies={"yes": 2.0})
    asked = listen(reward, monkeypatch, "yes")
    for step in range(3):
        scores = reward(chunk([step, 10 + step], wrist=[20 + step, 30 + step], starts=[step == 0] * 2))
        assert scores.tolist() == [[0.0, 2.0]] * 2
    assert [images for _, images in asked] == [
        *([0, 20], [10, 30]),
        *([0, 1, 20, 21], [10, 11, 30, 31]),
        *([1, 2, 21, 22], [11, 12, 31, 32]),
    ]
    reward(chunk([3, 13], wrist=[23, 33], starts=[True, False]))
    assert [images for _, images in asked[-2:]] == [[3, 23], [12, 13, 32, 33]]


def test_it_is_asked_at_intervals_once_an_episode_is_long_enough(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = build(min_history_size=3, input_interval=2, interval_reward=-0.5, replies={"yes": 1.0})
    asked = listen(reward, monkeypatch, "yes")
    scores = [reward(chunk([step], starts=[step in {0, 5}]))[0].tolist() for step in range(9)]
    assert [images for _, images in asked] == [[3], [8]]
    assert scores == [[0.0, 1.0] if step in {3, 8} else [0.0, -0.5] for step in range(9)]


def test_a_key_may_hold_several_cameras(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = build(image_keys=["main_images", "extra_view_images"], history_size=2, replies={"yes": 1.0})
    asked = listen(reward, monkeypatch, "yes")
    for step in range(2):
        request = chunk([step], starts=[step == 0])
        request.obs["extra_view_images"] = torch.stack(
            [request.obs["main_images"] + 50, request.obs["main_images"] + 90], 1
        )
        reward(request)
    assert asked[-1][1] == [0, 1, 50, 51, 90, 91]


def test_environments_at_rest_are_not_asked_about(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = build(interval_reward=-0.5, min_history_size=2, history_size=3, replies={"yes": 1.0})
    asked = listen(reward, monkeypatch, "yes")
    for step in range(3):
        scores = reward(chunk([step, 10 + step], starts=[step == 0] * 2, rests=[1] if step == 1 else []))
    assert [images for _, images in asked] == [[0, 1], [0, 1, 2], [10, 12]]
    assert scores.tolist() == [[0.0, 1.0]] * 2
    assert reward(chunk([0], starts=[False], rests=[0])).tolist() == [[0.0, 0.0]]


def test_the_question_names_the_task(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = build(question="Is '{task}' done?", replies={"yes": 1.0})
    asked = listen(reward, monkeypatch, "yes")
    reward(chunk([1, 2], starts=[True, True]))
    assert [text for text, _ in asked] == ["Is 'task 0' done?", "Is 'task 1' done?"]
    request = chunk([1], starts=[True])
    del request.obs["task_descriptions"]
    with pytest.raises(RewardError, match=r"Write the task\s+into the question"):
        reward(request)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Positive", 1.0),
        ('{"trend": "negative"}', -0.2),
        ("positive? no: NEGATIVE.", -0.2),
        ("postive", 0.3),
        ("", 0.3),
    ],
)
def test_the_last_word_that_is_known_counts(build: Any, reply: str, expected: float) -> None:
    reward = build(replies={"positive": 1.0, "Negative": -0.2}, invalid_reward=0.3)
    assert reward.reward_of(reply) == expected


@pytest.mark.parametrize(("reply", "expected"), [("0.75", 0.75), ("1 of 2: -.5", -0.5), ("no idea", 0.1)])
def test_without_words_the_last_number_counts(build: Any, reply: str, expected: float) -> None:
    assert build(invalid_reward=0.1).reward_of(reply) == expected


def test_a_camera_that_is_not_there_is_named(build: Any) -> None:
    with pytest.raises(RewardError, match=r"received \['wrist_images'\]; the environment shows main_images, task"):
        build(image_keys=["wrist_images"])(chunk([1], starts=[True]))


def test_the_reply_is_the_most_likely_one_of_the_model(build: Any, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    reward = build(max_new_tokens=4, max_context_tokens=256)
    images = (picture(1), picture(2))
    replies = reward.engine.replies([("How many?", images), ("How many?", images[:1])])
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    for reply, shown in zip(replies, (images, images[:1]), strict=True):
        marks = "<|vision_start|><|image_pad|><|vision_end|>" * len(shown)
        prompt = reward.engine.tokenizer.encode(f"<user>{marks}How many?<assistant>", add_special_tokens=False)
        ids = list(reward.engine.processor.expand(prompt, shown))
        first = len(ids)
        with torch.no_grad():
            for _ in range(4):
                ids.append(int(stock_logits(model, reward.engine.processor, ids, shown)[-1].argmax()))
        tokens = ids[first:]
        tokenizer = reward.engine.tokenizer
        stop = next((at for at, token in enumerate(tokens) if token == tokenizer.eos_token_id), len(tokens))
        assert reply == reward.engine.tokenizer.decode(tokens[:stop], skip_special_tokens=True)
    with pytest.raises(EngineError, match="fewer than the context of 256 tokens"):
        reward.engine.replies([("How many?" * 30, images)])
