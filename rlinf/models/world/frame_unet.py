"""``world_model_type: frame_unet``: a small network that imagines frame after frame by flow matching.

As in DIAMOND (Alonso et al., arXiv 2405.12399) a U-Net sees the last frames beside the noisy next one, and the action
scales and shifts its normalised features. It predicts the clean frame, from which the velocity of the flow follows.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from rlinf.data.messages.embodied import FrameWindow
from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import TASK_WORDS, SuccessClassifier
from rlinf.models.world.world_model import WorldModel

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_CLASSIFIER = "success_classifier.pt"
_FREQUENCIES = 4
_GROUPS = 4
_ROWS = 16
"""Rows of a pass, the last of which is filled up: in passes of other sizes sums may be rounded otherwise."""
_PAST_NOISE = 0.05
"""Largest deviation of noise on past frames in training: what is imagined is never as clean as what was recorded."""
_SMALLEST_REST = 0.1
"""Of the way from noise to frame: an error near its end counts at most 1 / 0.1 times as much as at its beginning."""


@dataclass(frozen=True, kw_only=True)
class FrameUNetConfig:
    """Sizes of the network; kept in its folder.

    Attributes:
        image_size: Height and width of the images in pixels, multiples of 4.
        action_dim: Numbers of an action (``A``).
        state_dim: Length of the states (``S``).
        num_frames: Steps of the past that it sees (``F``).
        width: Channels at full resolution, a multiple of 4; twice as many at half and four times at a quarter of it.
        num_steps: Steps from noise to a frame. One imagines the mean of what may follow, which is sharp where only one
            thing may.
    """

    image_size: tuple[int, int]
    action_dim: int
    state_dim: int = 0
    num_frames: int = 1
    width: int = 16
    num_steps: int = 1

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            ConfigError: Images cannot be halved twice, or channels not be put into four groups.
        """
        if any(size % 4 for size in (*self.image_size, self.width)):
            raise ConfigError(
                f"A frame_unet halves images twice and normalises channels in four groups: image_size "
                f"{list(self.image_size)} and width {self.width} have to be multiples of 4."
            )


class FrameUNet(WorldModel):
    """See the module.

    Args:
        cfg: Its sizes.
        classifier: Of success, on ``main_images`` and maybe sentences; None finds none.
    """

    action_mean: torch.Tensor
    action_std: torch.Tensor
    state_mean: torch.Tensor
    state_std: torch.Tensor

    def __init__(self, cfg: FrameUNetConfig, classifier: SuccessClassifier | None = None) -> None:
        super().__init__()
        self.cfg, self.classifier = cfg, classifier
        self.image_size, self.state_dim, self.num_frames = cfg.image_size, cfg.state_dim, cfg.num_frames
        for name, size in (("state", cfg.state_dim), ("action", cfg.action_dim)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))
        self.register_buffer("action_low", -torch.ones(cfg.action_dim))
        self.register_buffer("action_high", torch.ones(cfg.action_dim))
        width, wide = cfg.width, 4 * cfg.width
        known = cfg.action_dim + cfg.state_dim + 2 * _FREQUENCIES + 1
        self.condition = nn.Sequential(nn.Linear(known, wide), nn.SiLU(), nn.Linear(wide, wide), nn.SiLU())
        self.into = nn.Conv2d(3 * (1 + cfg.num_frames), width, 3, padding=1)
        self.down = nn.ModuleList([_Block(width, width, wide), _Block(width, 2 * width, wide)])
        self.middle = nn.Sequential(_Block(2 * width, wide, wide), _Block(wide, wide, wide))
        self.up = nn.ModuleList([_Block(wide + 2 * width, 2 * width, wide), _Block(3 * width, width, wide)])
        self.out = nn.Conv2d(width, 3, 3, padding=1)
        self.state_change: nn.Module | None = None
        if cfg.state_dim:
            self.state_change = nn.Sequential(nn.Linear(2 * wide, wide), nn.SiLU(), nn.Linear(wide, cfg.state_dim))

    def forward(
        self, noisy: torch.Tensor, times: torch.Tensor, past: torch.Tensor, states: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the clean next frame [B, 3, H, W] and the next normalised states [B, S].

        Args:
            noisy: float32 [B, 3, H, W]; ``(1 - t) * noise + t * frame``.
            times: float32 [B]; ``t``, 0 is noise.
            past: float32 [B, F, 3, H, W] in -1..1, the newest last.
            states: float32 [B, S], normalised.
            actions: float32 [B, A], normalised.
        """
        angles = times[:, None] * math.pi * 2.0 ** torch.arange(_FREQUENCIES, device=times.device)
        known = [actions, states, times[:, None], angles.sin(), angles.cos()]
        condition = self.condition(torch.cat(known, -1))
        fine = self.down[0](self.into(torch.cat([noisy, past.flatten(1, 2)], 1)), condition)
        half = self.down[1](functional.avg_pool2d(fine, 2), condition)
        quarter = functional.avg_pool2d(half, 2)
        for block in self.middle:
            quarter = block(quarter, condition)
        grown = self.up[0](torch.cat([_doubled(quarter), half], 1), condition)
        grown = self.up[1](torch.cat([_doubled(grown), fine], 1), condition)
        if self.state_change is not None:
            states = states + self.state_change(torch.cat([quarter.mean((-2, -1)), condition], -1))
        return past[:, -1] + self.out(grown), states

    def loss(self, frames: FrameWindow, actions: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return the mean squared error of velocities, and of normalised states.

        Half of the rows begin at noise, which is all that ``num_steps: 1`` asks for.

        Args:
            frames: ``F + 1`` steps of ``B`` rows.
            actions: float32 [B, A]; the one between the last two.
            generator: Of noise and times.
        """
        images, states = _pixels(frames.images), (frames.states - self.state_mean) / self.state_std
        target, rows = images[:, -1], len(images)
        blurred = _PAST_NOISE * torch.rand(rows, 1, 1, 1, 1, generator=generator)
        past = images[:, :-1] + blurred * torch.randn(images[:, :-1].shape, generator=generator)
        times = torch.rand(rows, generator=generator) * (torch.rand(rows, generator=generator) < 0.5)
        noise = torch.randn(target.shape, generator=generator)
        t = times[:, None, None, None]
        found, state = self(
            (1 - t) * noise + t * target,
            times,
            past,
            states[:, -2],
            (actions - self.action_mean) / self.action_std,
        )
        error = (found - target).square().mean((1, 2, 3)) / (1 - times).clamp_min(_SMALLEST_REST)
        total: torch.Tensor = error.mean()
        return total + functional.mse_loss(state, states[:, -1]) if self.state_dim else total

    def check_tasks(self, tasks: list[str]) -> None:
        """See ``WorldModel``."""
        if self.classifier is not None:
            self.classifier.word_numbers(tasks)

    @torch.no_grad()
    def imagine(self, past: FrameWindow, actions: torch.Tensor, seeds: torch.Tensor) -> FrameWindow:
        """See ``WorldModel``."""
        parts = [self._imagine_rows(*part) for part in zip(*_passes(past, actions, seeds), strict=True)]
        rows = len(actions)
        return FrameWindow(
            torch.cat([part.images for part in parts])[:rows], torch.cat([part.states for part in parts])[:rows]
        )

    @torch.no_grad()
    def success(self, frames: FrameWindow, tasks: list[str]) -> torch.Tensor:
        """See ``WorldModel``; sentences change nothing where the classifier was trained without words.

        Raises:
            ConfigError: The model was trained without a classifier, or the classifier does not know a sentence.
        """
        if self.classifier is None:
            raise ConfigError(
                f"This world model holds no {_CLASSIFIER}, so that nothing says when a task is solved. Train it again "
                "with --success-classifier, or copy the file into its folder."
            )
        words = self.classifier.word_numbers(tasks).repeat_interleave(frames.images.shape[1], 0)
        parts = zip(torch.split(frames.images.flatten(0, 1), _ROWS), torch.split(words, _ROWS), strict=True)
        scores = [
            torch.sigmoid(self.classifier({"main_images": _filled(shown), TASK_WORDS: _filled(said)}))[: len(shown)]
            for shown, said in parts
        ]
        return torch.cat(scores).view(frames.images.shape[:2])

    def save(self, folder: Path) -> None:
        """Write configuration, weights and classifier into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _CONFIG).write_text(json.dumps(asdict(self.cfg), indent=1) + "\n", encoding="utf-8")
        weights = {k: v.contiguous() for k, v in self.state_dict().items() if not k.startswith("classifier.")}
        save_file(weights, folder / _WEIGHTS)
        if self.classifier is not None:
            self.classifier.save(folder / _CLASSIFIER)

    @classmethod
    def load(cls, folder: Path) -> FrameUNet:
        """See ``WorldModel``."""
        try:
            content: dict[str, Any] = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
            cfg = FrameUNetConfig(**content | {"image_size": tuple(content["image_size"])})
            model = cls(cfg)
            model.load_state_dict(load_file(folder / _WEIGHTS))
        except Exception as error:
            # A damaged file makes its reader raise almost anything.
            raise ConfigError(
                f"model_path: received '{folder}', which holds no frame_unet ({error}). Train one with "
                "examples/world_model/train_world_model.py."
            ) from error
        if (folder / _CLASSIFIER).is_file():
            model.classifier = SuccessClassifier.load(folder / _CLASSIFIER)
        return model

    def _imagine_rows(self, past: FrameWindow, actions: torch.Tensor, seeds: torch.Tensor) -> FrameWindow:
        images, state = _pixels(past.images), (past.states[:, -1] - self.state_mean) / self.state_std
        found: list[torch.Tensor] = []
        states: list[torch.Tensor] = []
        for step in range(actions.shape[1]):
            action = (actions[:, step] - self.action_mean) / self.action_std
            frame, state = self._next(images, state, action, _noise(seeds[:, step], images[:, -1]))
            shown = ((frame + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
            # What is shown is what it goes on from: an episode can be continued from what was seen of it.
            images = torch.cat([images[:, 1:], _pixels(shown.permute(0, 2, 3, 1)[:, None])], 1)
            found.append(shown.permute(0, 2, 3, 1))
            states.append(state * self.state_std + self.state_mean)
        return FrameWindow(torch.stack(found, 1), torch.stack(states, 1))

    def _next(
        self, past: torch.Tensor, state: torch.Tensor, action: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        frame, num_steps = noise, self.cfg.num_steps
        after = state
        for number in range(num_steps):
            times = torch.full((len(noise),), number / num_steps, device=noise.device)
            clean, after = self(frame, times, past, state, action)
            frame = frame + (clean - frame) / (num_steps - number)
        return frame, after


class _Block(nn.Module):
    """Two convolutions with a way around them, normalised in groups that the condition scales and shifts."""

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(_GROUPS, size, affine=False) for size in (inputs, outputs)])
        self.scales = nn.ModuleList([nn.Linear(condition, 2 * size) for size in (inputs, outputs)])
        self.convolutions = nn.ModuleList([nn.Conv2d(size, outputs, 3, padding=1) for size in (inputs, outputs)])
        self.around = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, features: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        found = features
        for norm, scale, convolution in zip(self.norms, self.scales, self.convolutions, strict=True):
            factor, offset = scale(condition)[:, :, None, None].chunk(2, 1)
            found = convolution(functional.silu(norm(found) * (1 + factor) + offset))
        result: torch.Tensor = self.around(features) + found
        return result


def _doubled(features: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(features, scale_factor=2.0)


def _pixels(images: torch.Tensor) -> torch.Tensor:
    """Return uint8 [..., H, W, 3] as float32 [..., 3, H, W] in -1..1."""
    return images.movedim(-1, -3).float() / 127.5 - 1


def _noise(seeds: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return normal noise, each row of its own seed."""
    shape = tuple(like.shape[1:])
    drawn = [np.random.default_rng(seed).standard_normal(shape, np.float32) for seed in seeds.tolist()]
    return torch.from_numpy(np.stack(drawn)).to(like.device)


def _filled(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([rows, rows[-1:].expand(_ROWS - len(rows), *rows.shape[1:])])


def _passes(past: FrameWindow, actions: torch.Tensor, seeds: torch.Tensor) -> tuple[Any, Any, Any]:
    """Return the rows in passes of ``_ROWS`` each."""
    images, states, moves, numbers = (
        [_filled(part) for part in torch.split(value, _ROWS)] for value in (past.images, past.states, actions, seeds)
    )
    return [FrameWindow(*part) for part in zip(images, states, strict=True)], moves, numbers
