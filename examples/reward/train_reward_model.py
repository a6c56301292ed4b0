"""Trains the classifier of success that ``reward_type: model`` rewards with, on frames of a recipe's environments.

Random actions drive the environments of ``env.train``, which end their episodes at success. The observation in which an
episode ends is labelled by its success, those before as failures. Half of every batch is successes. The frames that the
classifier is judged by come from other episodes.

    python examples/reward/train_reward_model.py pixel_reach_ppo_reward_model --image-keys main_images \
        --output results/pixel_reach_classifier.pt
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import needed

needed.check_packages(__file__)

import torch
from torch.nn import functional

from rlinf.cli.errors import run_and_report
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import EnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs import make_vector_env
from rlinf.envs.conformance import sample_actions
from rlinf.errors import ConfigError
from rlinf.models.control.cnn_policy import random_shift
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier
from rlinf.utils.seeding import derive_seed

KEPT_FAILURES = 0.05
"""Share of the observations within episodes that is kept: neighbours differ little."""
BATCH = 64
LARGEST_SHIFT = 4
"""Images are shifted by up to so many pixels in training: few successes then go a long way."""


@dataclasses.dataclass(frozen=True)
class Frames:
    """Observations, ``N`` rows, and bool [N] labels of success."""

    obs: Observation
    labels: torch.Tensor


def collect(cfg: EnvConfig, keys: Sequence[str], *, steps: int, seed: int) -> Frames:
    """Drive environments by random actions and label what they show.

    Args:
        cfg: The environments.
        keys: Keys of the observation to keep.
        steps: Steps of all environments together.
        seed: Seed of start states and actions.
    """
    cfg = dataclasses.replace(cfg, auto_reset=True, ignore_terminations=False, seed=seed, num_env_processes=0)
    generator = torch.Generator().manual_seed(derive_seed(seed, "reward model", "kept failures"))
    parts: list[Observation] = []
    labels: list[torch.Tensor] = []
    with make_vector_env(cfg, num_envs=cfg.total_num_envs) as env:
        env.reset(0)
        for number in range(steps // cfg.total_num_envs):
            action_seed = derive_seed(seed, "reward model", "actions", number)
            chunk = env.chunk_step(
                sample_actions(env.policy_space, num_envs=cfg.total_num_envs, num_chunks=1, seed=action_seed)
            )
            if chunk.final_ids is not None and chunk.final_obs is not None:
                parts.append({key: chunk.final_obs[key] for key in keys})
                labels.append(torch.tensor([episode["success_at_end"] > 0 for episode in chunk.episodes]))
            kept = torch.rand(cfg.total_num_envs, generator=generator) < KEPT_FAILURES
            if chunk.final_ids is not None:
                kept[chunk.final_ids] = False
            parts.append({key: chunk.obs[key][kept] for key in keys})
            labels.append(torch.zeros(int(kept.sum()), dtype=torch.bool))
    return Frames({key: torch.cat([part[key] for part in parts]) for key in keys}, torch.cat(labels))


def fit(classifier: SuccessClassifier, frames: Frames, *, updates: int, lr: float, seed: int) -> None:
    """Train on batches that are half successes.

    Args:
        classifier: What is trained.
        frames: What it is trained on.
        updates: Optimizer steps.
        lr: Learning rate.
        seed: Seed of the batches.

    Raises:
        ConfigError: The frames show no success, or nothing else.
    """
    groups = [torch.nonzero(frames.labels == label).flatten() for label in (True, False)]
    if not all(len(group) for group in groups):
        raise ConfigError(
            f"--steps: the frames show {len(groups[0])} successes and {len(groups[1])} failures; both are needed. "
            "Collect more, or make the task easier for random actions."
        )
    generator = torch.Generator().manual_seed(derive_seed(seed, "reward model", "batches"))
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=lr)
    for _ in range(updates):
        half = [group[torch.randint(len(group), (BATCH // 2,), generator=generator)] for group in groups]
        rows = torch.cat(half)
        obs = {key: value[rows] for key, value in frames.obs.items()}
        shifted = {key: random_shift(obs[key], LARGEST_SHIFT, generator) for key in classifier.cfg.image_keys}
        logits = classifier(obs | shifted)
        loss = functional.binary_cross_entropy_with_logits(logits, frames.labels[rows].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def judge(classifier: SuccessClassifier, frames: Frames) -> dict[str, float]:
    """Return how the classifier does at a threshold of 0.5."""
    parts = [
        classifier({key: value[start : start + 1024] for key, value in frames.obs.items()})
        for start in range(0, len(frames.labels), 1024)
    ]
    predicted, actual = torch.cat(parts) > 0, frames.labels
    hits = float((predicted & actual).sum())
    return {
        "frames": float(len(actual)),
        "successes": float(actual.sum()),
        "accuracy": float((predicted == actual).float().mean()),
        "precision": hits / max(float(predicted.sum()), 1.0),
        "recall": hits / max(float(actual.sum()), 1.0),
    }


def train(args: argparse.Namespace) -> None:
    """Collect, fit, judge and write."""
    env = validate_cfg(load_recipe(args.recipe, args.overrides)).env.train
    keys = [*args.image_keys, *(["states"] if args.states else [])]
    if not keys:
        raise ConfigError("--image-keys: nothing to look at; name cameras, or pass --states.")
    frames = collect(env, keys, steps=args.steps, seed=derive_seed(args.seed, "reward model", "training frames"))
    torch.manual_seed(derive_seed(args.seed, "reward model", "initial weights"))
    sizes = {tuple(frames.obs[key].shape[1:3]) for key in args.image_keys}
    if len(sizes) > 1:
        raise ConfigError(f"--image-keys: the cameras' images differ in size ({sorted(sizes)}). Name cameras alike.")
    cfg = ClassifierConfig(
        image_keys=tuple(args.image_keys),
        image_size=next(iter(sizes), (0, 0)),
        state_dim=frames.obs["states"].shape[1] if args.states else 0,
        encoder=args.encoder,
    )
    classifier = SuccessClassifier(cfg)
    fit(classifier, frames, updates=args.updates, lr=args.lr, seed=args.seed)
    classifier.eval()
    unseen = collect(env, keys, steps=args.steps // 4, seed=derive_seed(args.seed, "reward model", "unseen frames"))
    results = {"training": judge(classifier, frames), "unseen": judge(classifier, unseen)}
    output = Path(args.output)
    classifier.save(output)
    output.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, values in results.items():
        sys.stdout.write(f"{name}: {', '.join(f'{key} {value:.4g}' for key, value in values.items())}\n")
    sys.stdout.write(f"Written to {output}\n")


def main() -> int:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="recipe whose env.train is looked at")
    parser.add_argument("overrides", nargs="*", help="key=value, as for training")
    parser.add_argument("--output", required=True, help="file to write; a .json with the results goes beside it")
    parser.add_argument("--image-keys", nargs="*", default=[], help="cameras to look at")
    parser.add_argument("--states", action="store_true", help="look at the states")
    parser.add_argument("--encoder", default="small", choices=("small", "resnet10", "resnet18"))
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps to collect frames from")
    parser.add_argument("--updates", type=int, default=600, help="optimizer steps")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    args = parser.parse_args()
    return run_and_report(lambda: train(args))


if __name__ == "__main__":
    raise SystemExit(main())
