"""The classifier of success: log-odds of images, states and a sentence, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import TASK_WORDS, ClassifierConfig, SuccessClassifier, words_of

CFG = ClassifierConfig(image_size=(32, 32), state_dim=3, latent_dim=8)
WORDS = ("put", "the", "red", "green", "cube", "on")


def listening() -> SuccessClassifier:
    torch.manual_seed(0)
    return SuccessClassifier(ClassifierConfig(image_size=(32, 32), latent_dim=8, words=WORDS))


def odds(classifier: SuccessClassifier, tasks: list[str]) -> torch.Tensor:
    obs: dict[str, Any] = {"main_images": observations(1)["main_images"].expand(len(tasks), -1, -1, -1)}
    logits: torch.Tensor = classifier({**obs, "task_descriptions": tasks})
    return logits


def observations(num: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (num, 32, 32, 3), generator=generator, dtype=torch.uint8)
    return {"main_images": images, "states": torch.randn(num, 3, generator=generator)}


def test_every_row_has_log_odds_that_follow_image_and_state() -> None:
    torch.manual_seed(0)
    classifier = SuccessClassifier(CFG)
    obs = observations(3)
    logits = classifier(obs)
    assert (logits.shape, logits.dtype) == ((3,), torch.float32)
    darker = classifier({**obs, "main_images": torch.zeros_like(obs["main_images"])})
    elsewhere = classifier({**obs, "states": obs["states"] + 1})
    assert (darker != logits).all()
    assert (elsewhere != logits).all()


def test_states_are_not_looked_at_where_the_config_has_none() -> None:
    classifier = SuccessClassifier(ClassifierConfig(image_size=(32, 32), latent_dim=8))
    obs = observations(2)
    assert torch.equal(classifier(obs), classifier({"main_images": obs["main_images"]}))


def test_a_saved_classifier_gives_the_same_numbers(tmp_path: Path) -> None:
    classifier = SuccessClassifier(CFG)
    classifier.save(tmp_path / "new" / "classifier.pt")
    loaded = SuccessClassifier.load(tmp_path / "new" / "classifier.pt")
    assert loaded.cfg == CFG
    assert torch.equal(loaded(observations(2)), classifier(observations(2)))


def test_a_file_that_is_not_there_or_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist. Train it with"):
        SuccessClassifier.load(tmp_path / "none.pt")
    torch.save({"weights": {}}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match="holds no classifier"):
        SuccessClassifier.load(tmp_path / "other.pt")


def test_log_odds_follow_the_words_of_the_sentence_and_their_order() -> None:
    tasks = ["put the red on the green cube", "put the green on the red cube", "put the red cube", "Put the red cube!"]
    found = odds(listening(), tasks)
    torch.testing.assert_close(found[2], found[3])
    assert (found[:2] - found[2]).abs().min() > 1e-3
    assert (found[0] - found[1]).abs() > 1e-3


def test_a_sentence_is_read_alike_beside_others() -> None:
    classifier = listening()
    long, short = "put the red cube on the green cube", "the red cube"
    numbers = classifier.word_numbers([long, short])
    assert numbers.tolist() == [[1, 2, 3, 5, 6, 2, 4, 5], [2, 3, 5, 0, 0, 0, 0, 0]]
    alone = classifier._read(classifier.word_numbers([short]))
    assert torch.equal(classifier._read(numbers)[1:], alone)
    seen = {"main_images": observations(2)["main_images"]}
    told = classifier({**seen, "task_descriptions": [long, short]})
    assert torch.equal(classifier({**seen, TASK_WORDS: numbers}), told)


@pytest.mark.parametrize(
    ("task", "text"), [("put the blue ball", "it does not know blue, ball"), ("", "which has no words")]
)
def test_a_sentence_that_it_cannot_read_is_refused(task: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{text}; its words are put, the.*actor\.model\.words"):
        odds(listening(), ["the red cube", task])


def test_without_words_no_sentence_is_looked_at() -> None:
    classifier = SuccessClassifier(ClassifierConfig(image_size=(32, 32), latent_dim=8))
    assert classifier.word_numbers(["anything", ""]).shape == (2, 0)
    found = odds(classifier, ["anything", ""])
    torch.testing.assert_close(found[0], found[1])


def test_a_file_from_before_there_were_sentences_is_read(tmp_path: Path) -> None:
    classifier = SuccessClassifier(CFG)
    classifier.save(tmp_path / "old.pt")
    content = torch.load(tmp_path / "old.pt", weights_only=True)
    del content["config"]["words"]
    torch.save(content, tmp_path / "old.pt")
    loaded = SuccessClassifier.load(tmp_path / "old.pt")
    assert torch.equal(loaded(observations(2)), classifier(observations(2)))


def test_a_saved_classifier_keeps_its_words(tmp_path: Path) -> None:
    classifier, tasks = listening(), ["put the red cube", "put the green cube"]
    classifier.save(tmp_path / "classifier.pt")
    loaded = SuccessClassifier.load(tmp_path / "classifier.pt")
    assert loaded.cfg.words == WORDS
    assert torch.equal(odds(loaded, tasks), odds(classifier, tasks))


def test_words_are_what_stands_between_other_signs() -> None:
    assert words_of("Pick up the RED cube, 2x; don\u2019t.") == ["pick", "up", "the", "red", "cube", "2x", "don", "t"]
