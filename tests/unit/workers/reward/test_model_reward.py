"""Rewards that models give: a classifier of observations, and one of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from reward_requests import request

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.base import at_last_action
from rlinf.config.schema.reward import ModelRewardConfig, TextModelRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import ConfigError, RewardError
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier


def save_classifier(path: Path) -> Any:
    torch.manual_seed(0)
    classifier = SuccessClassifier(ClassifierConfig(image_keys=("main_images",), image_size=(16, 20), state_dim=1))
    classifier.save(path)
    return classifier.eval()


def model_reward(path: Path, **keys: Any) -> Any:
    cfg = ModelRewardConfig(reward_type="model", model_path=str(path), **keys)
    return get_reward_class("model")(cfg)


def image_request() -> Any:
    images = torch.randint(0, 256, (3, 16, 20, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    asked = request()
    asked.obs["main_images"] = images
    return asked


def test_a_learned_reward_is_the_probability_of_success(tmp_path: Path) -> None:
    classifier, asked = save_classifier(tmp_path / "c.pt"), image_request()
    probability = torch.sigmoid(classifier(asked.obs)).detach()
    rewards = model_reward(tmp_path / "c.pt")(asked)
    torch.testing.assert_close(rewards, at_last_action(probability, asked.executed))
    lowest = float(probability[:2].min())
    kept = model_reward(tmp_path / "c.pt", reward_threshold=lowest + 1e-6)(asked)
    assert (kept[:2] > 0).sum() == 1


def test_a_learned_reward_wants_the_file_and_the_cameras_it_was_trained_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train_reward_model\.py"):
        model_reward(tmp_path / "absent.pt")
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match="holds no classifier"):
        model_reward(tmp_path / "other.pt")
    save_classifier(tmp_path / "c.pt")
    with pytest.raises(RewardError, match="main_images"):
        model_reward(tmp_path / "c.pt")(request())


def test_a_learned_reward_depends_on_the_sentence(tmp_path: Path) -> None:
    torch.manual_seed(0)
    classifier = SuccessClassifier(ClassifierConfig(image_size=(16, 20), words=("go", "left", "right"))).eval()
    classifier.save(tmp_path / "c.pt")
    asked = image_request()
    with pytest.raises(RewardError, match="shows no 'task_descriptions'"):
        model_reward(tmp_path / "c.pt")(asked)
    rewards = []
    for tasks in (["go left"] * 3, ["go right"] * 3):
        asked.obs["task_descriptions"] = tasks
        probability = torch.sigmoid(classifier(asked.obs)).detach()
        rewards.append(model_reward(tmp_path / "c.pt")(asked))
        torch.testing.assert_close(rewards[-1], at_last_action(probability, asked.executed))
    assert (rewards[0].sum(1) != rewards[1].sum(1)).any()


# -- text_model --------------------------------------------------------------------------------------------------------


def save_model(folder: Path, num_labels: int) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs transformers; run: pip install 'rlinf[reasoning]'")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"<pad>": 0, "<unk>": 1} | {letter: number for number, letter in enumerate("0123456789+=ab", start=2)}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", unk_token="<unk>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}={% endif %}{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    cfg = transformers.Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_labels=num_labels,
        pad_token_id=0,
    )
    model = transformers.Qwen2ForSequenceClassification(cfg).eval()
    model.save_pretrained(folder)
    return model, tokenizer


def make_model_reward(folder: Path, **keys: Any) -> Any:
    cfg = TextModelRewardConfig(reward_type="text_model", model_path=str(folder), **keys)
    return get_reward_class("text_model")(cfg)


@pytest.mark.parametrize(("num_labels", "template"), [(1, "text"), (3, "text"), (1, "chat")])
def test_a_model_scores_batches_as_it_scores_each_text(tmp_path: Path, num_labels: int, template: str) -> None:
    model, tokenizer = save_model(tmp_path, num_labels)
    texts = ["4", "5ab", "44444444", "a"]
    joined = "2+2==" if template == "chat" else "2+2="
    expected = []
    for text in texts:
        with torch.no_grad():
            logits = model(**tokenizer(joined + text, return_tensors="pt")).logits[0]
        expected.append(float(logits[0] if num_labels == 1 else logits.softmax(-1)[2]))
    reward = make_model_reward(tmp_path, batch_size=3, label=2 if num_labels > 1 else 0, template=template)
    assert reward([RewardQuery(prompt="2+2=", response=text) for text in texts]) == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == len(expected)


def test_a_model_that_cannot_serve_is_a_fault_of_the_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json"):
        make_model_reward(tmp_path / "absent")
    save_model(tmp_path, 2)
    with pytest.raises(ConfigError, match="labels 0 to 1"):
        make_model_reward(tmp_path, label=2)
