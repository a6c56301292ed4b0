"""Trains a world model on recorded episodes, for environments of ``env_type: world_model``.

It learns the next frame and state from the last ones and the action. Episodes at the end of the data set are held out:
the similarity of imagined chunks to them (PSNR), and how often success in an imagined episode agrees with the recorded
one, are printed and written beside the model. A classifier that was trained with words judges each episode by its
sentence, and is asked about another sentence of the data set too.

    python examples/world_model/train_world_model.py results/pixel_reach_episodes --output results/pixel_reach_dream \
        --success-classifier results/pixel_reach_classifier.pt
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import numpy as np
import torch

from rlinf.cli.errors import run_and_report
from rlinf.data.datasets.lerobot.dataset import EpisodeRecord, LeRobotDataset
from rlinf.data.messages.embodied import FrameWindow
from rlinf.errors import ConfigError
from rlinf.models.control.success_classifier import SuccessClassifier
from rlinf.models.world.frame_unet import FrameUNet, FrameUNetConfig
from rlinf.utils.seeding import derive_seed

BATCH = 64
CHUNK = 5
"""Steps that are imagined at once for the PSNR."""
HELD_OUT = 0.1
MOST_JUDGED = 200
"""Held-out episodes that are imagined."""
SUCCESS = 0.9
"""Probability from which a frame counts as success: ``env.*.success_threshold``."""
BARS = {"psnr": 26.0, "agreement": 0.85}
"""A model below one of them is no place to learn in."""
WARMUP_UPDATES = 50
_IMAGES, _STATES = "observation.images.main", "observation.state"


class Recorded:
    """Windows of the episodes of a data set, whose frames are kept in memory.

    Args:
        dataset: The data set.
        episodes: Which of its episodes.
        num_frames: Frames of the past in a window (``F``).
    """

    def __init__(self, dataset: LeRobotDataset, episodes: list[EpisodeRecord], num_frames: int) -> None:
        self.num_frames, self.lengths = num_frames, np.array([episode.length for episode in episodes])
        frames = np.concatenate([np.arange(e.end - e.length, e.end) for e in episodes])
        columns = dataset.frames(frames, [name for name in (_IMAGES, _STATES) if name in dataset.features])
        self.images = torch.from_numpy(columns[_IMAGES])
        self.states = torch.from_numpy(columns.get(_STATES, np.zeros((len(frames), 0), np.float32))).float()
        self.tasks = dataset.tasks_of(np.array([e.start for e in episodes], np.int64))
        self.actions = torch.from_numpy(dataset.column("action")[frames]).float()
        self.solved = dataset.column("next.success")[frames].astype(bool).ravel()
        self.ends = np.repeat(np.cumsum(self.lengths), self.lengths)
        self.firsts = self.ends - np.repeat(self.lengths, self.lengths)

    def sample(self, size: int, length: int, generator: np.random.Generator) -> tuple[FrameWindow, torch.Tensor]:
        """Return windows of ``F + length`` frames, and the actions float32 [size, length, A] between the later ones."""
        fits = np.flatnonzero(np.arange(len(self.ends)) + length < self.ends)
        if not len(fits):
            raise ConfigError(f"No recorded episode has more than {length} frames; collect longer ones.")
        return self.window(generator.choice(fits, size), length)

    def window(self, now: np.ndarray, length: int) -> tuple[FrameWindow, torch.Tensor]:
        """Return the frames around some: ``F`` up to ``now``, int64 [N], and ``length`` behind it, with the actions."""
        steps = now[:, None] + np.arange(1 - self.num_frames, length + 1)
        steps = np.maximum(steps, self.firsts[now, None])
        actions = self.actions[now[:, None] + np.arange(length)]
        return FrameWindow(self.images[steps], self.states[steps]), actions


def build(dataset: LeRobotDataset, args: argparse.Namespace) -> FrameUNet:
    """Return an untrained model of the data set's sizes, with its statistics."""
    for name in (_IMAGES, "action"):
        if name not in dataset.features:
            raise ConfigError(f"'{args.dataset}' has no '{name}'; a world model learns from images and actions.")
    torch.manual_seed(derive_seed(args.seed, "world model", "initial weights"))
    height, width, _ = dataset.features[_IMAGES].shape
    cfg = FrameUNetConfig(
        image_size=(height, width),
        action_dim=dataset.features["action"].shape[0],
        state_dim=dataset.features[_STATES].shape[0] if _STATES in dataset.features else 0,
        num_frames=args.num_frames,
        width=args.width,
        num_steps=args.num_steps,
    )
    classifier = None if args.success_classifier is None else SuccessClassifier.load(Path(args.success_classifier))
    model = FrameUNet(cfg, classifier)
    for name, stats in (("action", dataset.stats["action"]), ("state", dataset.stats.get(_STATES))):
        if stats is not None:
            getattr(model, f"{name}_mean").copy_(torch.from_numpy(np.asarray(stats["mean"])))
            getattr(model, f"{name}_std").copy_(torch.from_numpy(np.asarray(stats["std"])).clamp_min(1e-6))
    model.action_low.copy_(torch.from_numpy(np.asarray(dataset.stats["action"]["min"])))
    model.action_high.copy_(torch.from_numpy(np.asarray(dataset.stats["action"]["max"])))
    return model


def fit(model: FrameUNet, recorded: Recorded, args: argparse.Namespace) -> None:
    """Train with AdamW; the learning rate rises at first and falls along a cosine."""
    numbers = np.random.default_rng(derive_seed(args.seed, "world model", "batches"))
    generator = torch.Generator().manual_seed(derive_seed(args.seed, "world model", "noise"))
    weights = [value for name, value in model.named_parameters() if not name.startswith("classifier.")]
    optimizer = torch.optim.AdamW(weights, lr=args.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda done: min(1.0, (done + 1) / WARMUP_UPDATES) * (0.5 + 0.5 * math.cos(math.pi * done / args.updates)),
    )
    for number in range(args.updates):
        frames, actions = recorded.sample(BATCH, 1, numbers)
        loss = model.loss(frames, actions[:, 0], generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if number % 100 == 99:
            sys.stdout.write(f"update {number + 1}/{args.updates}: loss {loss.item():.4g}\n")
            sys.stdout.flush()


def judge(model: FrameUNet, recorded: Recorded, seed: int) -> dict[str, float]:
    """Return how alike imagined and recorded episodes are."""
    past, generator = model.num_frames, np.random.default_rng(derive_seed(seed, "world model", "judged"))
    frames, actions = recorded.sample(MOST_JUDGED, CHUNK, generator)
    seeds = torch.from_numpy(generator.integers(2**31, size=actions.shape[:2]))
    imagined, wanted = model.imagine(frames[:past], actions, seeds), frames[past:]
    still = frames.images[:, past - 1 : past].expand_as(wanted.images)
    found = {"psnr": psnr(imagined.images, wanted.images), "psnr_of_no_change": psnr(still, wanted.images)}
    return found if model.classifier is None else found | agreement(model, recorded, seed)


def psnr(images: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the mean peak signal-to-noise ratio in decibels of images, uint8 [..., H, W, 3]."""
    error = (images.float() - wanted.float()).square().mean((-3, -2, -1)).clamp_min(1.0)
    return float((10 * torch.log10(255.0**2 / error)).mean())


def agreement(model: FrameUNet, recorded: Recorded, seed: int) -> dict[str, float]:
    """Return how often success agrees when recorded actions are imagined from recorded first frames."""
    lengths = recorded.lengths[:MOST_JUDGED]
    ends = np.cumsum(lengths)
    steps = np.arange(lengths.max())
    # Episodes are imagined side by side; behind the end of a short one nothing is looked at.
    played = (ends - lengths)[:, None] + np.minimum(steps, lengths[:, None] - 1)
    frames, _ = recorded.window(ends - lengths, 0)
    seeds = [[derive_seed(seed, "world model", row, step) for step in steps.tolist()] for row in range(len(lengths))]
    imagined = model.imagine(frames, recorded.actions[played], torch.tensor(seeds))
    tasks, known = recorded.tasks[: len(lengths)], sorted(set(recorded.tasks))
    solved = (model.success(imagined, tasks) >= SUCCESS).numpy() & (steps < lengths[:, None])
    found: dict[bool, list[bool]] = {True: [], False: []}
    for row, end in enumerate(ends):
        found[bool(recorded.solved[end - lengths[row] : end].any())].append(bool(solved[row].any()))
    hits = sum(found[True]) + found[False].count(False)
    results = {
        "episodes": float(sum(map(len, found.values()))),
        "agreement": hits / max(sum(map(len, found.values())), 1),
        "recorded_successes": float(len(found[True])),
        "successes_imagined": sum(found[True]) / max(len(found[True]), 1),
        "failures_imagined": found[False].count(False) / max(len(found[False]), 1),
    }
    if model.classifier is None or not model.classifier.cfg.words or len(known) == 1:
        return results
    others = [known[(known.index(task) + 1) % len(known)] for task in tasks]
    wrongly = ((model.success(imagined, others) >= SUCCESS).numpy() & (steps < lengths[:, None])).any(1)
    return results | {"other_tasks_refused": 1.0 - float(wrongly[solved.any(1)].mean()) if solved.any() else 0.0}


def train(args: argparse.Namespace) -> None:
    """Fit, judge and write."""
    dataset = LeRobotDataset(Path(args.dataset))
    held_out = max(1, round(HELD_OUT * dataset.num_episodes))
    if dataset.num_episodes <= held_out:
        raise ConfigError(f"'{args.dataset}' has {dataset.num_episodes} episode; one is held out, so collect more.")
    model = build(dataset, args)
    model.check_tasks(dataset.tasks)
    fit(model, Recorded(dataset, dataset.episodes[:-held_out], args.num_frames), args)
    model.eval()
    output = Path(args.output)
    model.save(output)
    results = judge(model, Recorded(dataset, dataset.episodes[-held_out:], args.num_frames), args.seed)
    (output / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"held out: {', '.join(f'{key} {value:.4g}' for key, value in results.items())}\n")
    for name, bar in BARS.items():
        if results.get(name, bar) < bar:
            sys.stdout.write(f"{name} is below {bar:g}: raise --updates or --width, or collect more episodes.\n")
    sys.stdout.write(f"Written to {output}\n")


def main() -> int:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="folder of a data set in the LeRobot format")
    parser.add_argument("--output", required=True, help="folder to write")
    parser.add_argument("--success-classifier", help="file that examples/reward/train_reward_model.py wrote")
    parser.add_argument("--num-frames", type=int, default=1, help="frames of the past that it sees")
    parser.add_argument("--width", type=int, default=16, help="channels at full resolution")
    parser.add_argument("--num-steps", type=int, default=1, help="steps from noise to a frame")
    parser.add_argument("--updates", type=int, default=1000, help="optimizer steps")
    parser.add_argument("--lr", type=float, default=2e-3, help="largest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    args = parser.parse_args()
    return run_and_report(lambda: train(args))


if __name__ == "__main__":
    raise SystemExit(main())
