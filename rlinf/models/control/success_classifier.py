"""A classifier of success on camera images, states and a sentence: what a learned reward is made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.models.control.cnn_policy import CameraEncoder

_HIDDEN = 64
"""Width of the layer between features and answer."""
_SENTENCE = 16
"""Numbers that a sentence is read into."""
TASK_WORDS = "task_words"
"""Where an observation has the numbers of its sentence's words, int64 [B, L], in place of ``task_descriptions``."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """What a classifier sees, and by which network; kept in its file.

    Attributes:
        image_keys: Cameras: keys of the observation that hold uint8 [B, H, W, 3].
        image_size: Height and width of the images in pixels.
        state_dim: Length of ``obs["states"]``; 0 does not look at it.
        encoder: Convolutions, as ``actor.model.encoder``.
        latent_dim: Features of one camera.
        words: Of the sentences that it can read, in small letters; with none of them it knows one task alone, and reads
            no sentence.
    """

    image_keys: tuple[str, ...] = ("main_images",)
    image_size: tuple[int, int] = (48, 48)
    state_dim: int = 0
    encoder: str = "small"
    latent_dim: int = 64
    words: tuple[str, ...] = ()


class SuccessClassifier(nn.Module):
    """Predicts whether the task is solved in an observation: that of the sentence, where it was trained with some.

    Args:
        cfg: What it sees.
    """

    def __init__(self, cfg: ClassifierConfig) -> None:
        super().__init__()
        self.cfg = cfg
        height, width = cfg.image_size
        self.cameras = nn.ModuleDict(
            {key: CameraEncoder(cfg.encoder, cfg.latent_dim, height, width) for key in cfg.image_keys}
        )
        features = len(cfg.image_keys) * cfg.latent_dim + cfg.state_dim + (_SENTENCE if cfg.words else 0)
        self.head = nn.Sequential(nn.Linear(features, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))
        if cfg.words:
            self.words = nn.Embedding(1 + len(cfg.words), _SENTENCE, padding_idx=0)
            self.reader = nn.GRU(_SENTENCE, _SENTENCE)

    def forward(self, obs: Observation) -> torch.Tensor:
        """Return the log-odds of success in ``B`` observations, float32 [B].

        Args:
            obs: Images, states, and ``task_descriptions`` or ``task_words``, as far as they are looked at.

        Raises:
            ConfigError: A sentence has a word that it does not know.
        """
        device = next(self.parameters()).device
        features = [camera(obs[key].to(device)) for key, camera in self.cameras.items()]
        if self.cfg.state_dim:
            features.append(obs["states"].to(device, torch.float32))
        if self.cfg.words:
            numbers = obs[TASK_WORDS] if TASK_WORDS in obs else self.word_numbers(obs["task_descriptions"])
            features.append(self._read(numbers.to(device)))
        logits: torch.Tensor = self.head(torch.cat(features, -1))
        return logits.squeeze(-1)

    def word_numbers(self, tasks: Sequence[str]) -> torch.Tensor:
        """Return the numbers of the words of ``B`` sentences, int64 [B, L]; 0 is behind the end of shorter ones.

        Args:
            tasks: The sentences; a classifier without words takes any, and ``L`` is 0.

        Raises:
            ConfigError: One has no word, or one that it does not know.
        """
        if not self.cfg.words:
            return torch.zeros(len(tasks), 0, dtype=torch.int64)
        numbers = {word: number for number, word in enumerate(self.cfg.words, start=1)}
        sentences = [words_of(task) for task in tasks]
        for task, words in zip(tasks, sentences, strict=True):
            unknown = [word for word in words if word not in numbers]
            if unknown or not words:
                raise ConfigError(
                    f"The success classifier was given the task {task!r}, {_fault(unknown)}; its words are "
                    f"{', '.join(self.cfg.words)}. Train it on that task with them in actor.model.words, or correct "
                    "the sentence."
                )
        rows = [torch.tensor([numbers[word] for word in words]) for words in sentences]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def _read(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return what sentences [B, L] say, float32 [B, 16]; each is read alone, so that others do not round it."""
        rows = [tuple(number for number in row if number) for row in numbers.tolist()]
        said = {
            row: self.reader(self.words(torch.tensor(row, device=numbers.device)))[1][0] for row in dict.fromkeys(rows)
        }
        return torch.stack([said[row] for row in rows])

    def save(self, path: Path) -> None:
        """Write configuration and weights to one file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"config": asdict(self.cfg), "weights": self.state_dict()}, path)

    @staticmethod
    def load(path: Path) -> SuccessClassifier:
        """Read what ``save`` wrote.

        Raises:
            ConfigError: There is no such file, or it is something else.
        """
        try:
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            classifier = SuccessClassifier(ClassifierConfig(**content["config"]))
            classifier.load_state_dict(content["weights"])
        except FileNotFoundError as error:
            raise ConfigError(
                f"model_path: '{path}' does not exist. Train it with examples/reward/train_reward_model.py, or name "
                "another file."
            ) from error
        except Exception as error:
            raise ConfigError(
                f"model_path: '{path}' holds no classifier that examples/reward/train_reward_model.py wrote ({error}). "
                "Name another file."
            ) from error
        return classifier


def words_of(task: str) -> list[str]:
    """Return the words of a sentence in small letters, without what is between them."""
    return re.findall(r"\w+", task.lower())


def _fault(unknown: list[str]) -> str:
    return f"of whose words it does not know {', '.join(unknown)}" if unknown else "which has no words"
