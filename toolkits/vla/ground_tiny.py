"""Teach a tiny policy where the things that words name are, as large ones know from their pretraining.

    python toolkits/vla/ground_tiny.py langpick_grpo_openpi_tiny

Asks the recipe's model where the cube is that the sentence names, where all cubes are, and how far the named one is
from the hand, on scenes of its environment with the hand anywhere, until the share of right answers on held-out scenes
is ``--target``, and writes the weights back to ``actor.model.model_path``, with the shares. Without this stage
imitation of demonstrations learns to ignore images. Called again, it goes on from where it was. Further arguments are
overrides of the recipe.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import LangPickEnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.data.messages.batch_record import select_rows
from rlinf.data.messages.embodied import Observation
from rlinf.envs import make_vector_env
from rlinf.envs.simulators.langpick_single import DESCRIPTIONS
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.models.language.model_path import find_model_folder
from rlinf.models.vla.openpi import PiPolicy
from rlinf.models.vla.openvla_oft import OpenVLAOFTPolicy
from rlinf.utils.seeding import derive_seed

_NUM_ENVS = 50
_AREA = torch.tensor([[0.40, -0.14], [0.60, 0.14]])
"""Where answers may be, in meters; divided into ``_BINS`` along each axis."""
_BINS = 16
_WAYS = torch.tensor([-0.3, 0.3])
"""How far the hand may have to go along an axis, in meters; divided into ``_WAY_BINS``."""
_WAY_BINS = 24
_WARMUP = 50


def scenes(cfg: LangPickEnvConfig, count: int) -> tuple[Observation, torch.Tensor]:
    """Return ``count`` scenes and where their cubes are, float32 [count, 3, 2]."""
    cfg = dataclasses.replace(cfg, show_objects=True, random_hand=True, total_num_envs=_NUM_ENVS, group_size=1)
    parts: list[Observation] = []
    with make_vector_env(cfg, num_envs=_NUM_ENVS) as env:
        for epoch in range(-(-count // _NUM_ENVS)):
            parts.append(env.reset(epoch))
    obs: Observation = {key: torch.cat([part[key] for part in parts]) for key in ("states", "main_images", "objects")}
    return obs, obs["objects"].view(-1, 3, 3)[..., :2]


def learner(model: VLAConfig) -> BasePolicy:
    """Return the policy of a section ``actor.model``; what the recipe keeps (``freeze``) is what has to learn here."""
    return get_policy(dataclasses.replace(model, add_value_head=False, freeze=[]))


def features(
    policy: BasePolicy, record: dict[str, torch.Tensor], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Return what answers are read from: ``prefix`` [N, W], of images and words, and a flow's ``expert`` [N, E].

    The expert attends to keys and values, never to the language model's output: an answer that is read from the output
    may come from the last layer alone, and then says nothing to the expert. The expert's part is what its velocity at
    noise is read from, the mean over the executed actions.
    """
    if isinstance(policy, OpenVLAOFTPolicy):
        return {"prefix": policy.hidden_states(record)[:, 0]}
    assert isinstance(policy, PiPolicy)
    prefix = policy.prefix(record)
    rows = torch.arange(len(prefix.there))
    last = (prefix.there * torch.arange(prefix.there.shape[1])).argmax(1)
    words = torch.cat([tensor[rows, :, last].flatten(1) for tensor in prefix.keys_values[-1]], -1)
    noise = torch.randn(len(rows), 1, policy.cfg.horizon, policy.padded_dim, generator=generator)
    output = policy.expert_output(prefix, record["state"], noise, torch.ones(1))
    return {"prefix": words, "expert": output[:, 0, : policy.cfg.num_action_chunks].mean(1)}


def bins_of(numbers: torch.Tensor, area: torch.Tensor, count: int) -> torch.Tensor:
    """Return which of ``count`` equal bins hold numbers [...]; the outer ones hold what is beyond.

    Args:
        numbers: In meters.
        area: Where the first bin begins and the last one ends, [2] or [2, axes].
        count: Bins.
    """
    low, high = area
    return ((numbers - low) / (high - low) * count).long().clamp(0, count - 1)


def mean_of(logits: torch.Tensor, area: torch.Tensor) -> torch.Tensor:
    """Return the mean number [...] of answers [..., bins]; see ``bins_of``."""
    (low, high), count = area, logits.shape[-1]
    return low + (logits.softmax(-1) @ ((torch.arange(count) + 0.5) / count)) * (high - low)


def right_share(places: torch.Tensor, cubes: torch.Tensor, named: torch.Tensor) -> float:
    """Return the share of places [N, 2] whose nearest cube of [N, 3, 2] is the one that was named, int64 [N]."""
    return float(((cubes - places.unsqueeze(1)).norm(dim=-1).argmin(1) == named).float().mean())


class Grounding:
    """Questions on scenes, and heads that answer them.

    ``named`` and ``all`` ask for places, what the policy's head for actions sees of images and words; ``way``, for a
    flow, asks its expert how far the hand has to go. An answer on all cubes needs no word: it is found first, and what
    the word chooses among is then there.

    Args:
        policy: Learns.
        obs: Scenes.
        cubes: [M, 3, 2].
        held_out: Scenes at the end that are only asked about.
    """

    def __init__(self, policy: BasePolicy, obs: Observation, cubes: torch.Tensor, *, held_out: int) -> None:
        self.policy, self.obs, self.cubes, self.held_out = policy, obs, cubes, held_out
        first = torch.zeros(1, dtype=torch.int64)
        with torch.no_grad():
            seen = features(policy, self._record(first, first), torch.Generator())
        width = seen["prefix"].shape[-1]
        self.heads = nn.ModuleDict({"named": nn.Linear(width, 2 * _BINS), "all": nn.Linear(width, 6 * _BINS)})
        if "expert" in seen:
            self.heads["way"] = nn.Linear(seen["expert"].shape[-1], 2 * _WAY_BINS)

    def answers(self, rows: torch.Tensor, named: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return logits [N, numbers, bins] for scenes and the cubes that were named, both int64 [N], by question."""
        seen = features(self.policy, self._record(rows, named), generator)
        found = {name: self.heads[name](seen["prefix"]).view(len(rows), -1, _BINS) for name in ("named", "all")}
        if "expert" in seen:
            found["way"] = self.heads["way"](seen["expert"]).view(len(rows), 2, _WAY_BINS)
        return found

    def truths(self, rows: torch.Tensor, named: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the right bins, int64 [N, numbers], by question."""
        cubes = self.cubes[rows]
        way = self.cubes[rows, named] - self.obs["states"][rows, :2]
        return {
            "named": bins_of(self.cubes[rows, named], _AREA, _BINS),
            "all": bins_of(cubes, _AREA, _BINS).flatten(1),
            "way": bins_of(way, _WAYS, _WAY_BINS),
        }

    def train(self, steps: int, *, target: float, batch_size: int, lr: float, seed: int) -> int:
        """Answer random questions; report every 100 steps.

        Args:
            steps: At most.
            target: Share of right answers to each question at which it ends.
            batch_size: Questions of a step.
            lr: Learning rate. It does not fall: how many steps pass before answers get better differs widely.
            seed: Of the questions.

        Returns:
            Steps made.
        """
        parameters = [*self.policy.parameters(), *self.heads.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
        warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / _WARMUP))
        begin = time.process_time()
        for step in range(steps):
            generator = torch.Generator().manual_seed(derive_seed(seed, "grounding", step))
            rows = torch.randint(len(self.cubes) - self.held_out, (batch_size,), generator=generator)
            named = torch.randint(3, (batch_size,), generator=generator)
            truths = self.truths(rows, named)
            losses = [
                nn.functional.cross_entropy(answer.flatten(0, 1), truths[name].flatten())
                for name, answer in self.answers(rows, named, generator).items()
            ]
            loss = torch.stack(losses).sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            warm.step()
            if step % 100 == 99:
                spent, right = time.process_time() - begin, self.measure()
                print(f"step {step + 1} loss {loss:.3f} right {right} cpu {spent:.0f} s", flush=True)
                if min(right.values()) >= target:
                    return step + 1
        return steps

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Return the share of right answers on held-out scenes, by question on the named cube."""
        rows = torch.arange(len(self.cubes) - self.held_out, len(self.cubes))
        named = rows % 3
        answers = self.answers(rows, named, torch.Generator().manual_seed(0))
        places = {"named": mean_of(answers["named"], _AREA)}
        if "way" in answers:
            places["way"] = self.obs["states"][rows, :2] + mean_of(answers["way"], _WAYS)
        return {name: round(right_share(place, self.cubes[rows], named), 3) for name, place in places.items()}

    def _record(self, rows: torch.Tensor, named: torch.Tensor) -> dict[str, torch.Tensor]:
        obs = select_rows(self.obs, rows)
        obs["task_descriptions"] = [DESCRIPTIONS[number] for number in named.tolist()]
        return self.policy.inputs.record(obs, torch.device("cpu"))


def main() -> None:
    """Ground the recipe's model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--steps", type=int, default=3000, help="at most")
    parser.add_argument("--target", type=float, default=0.97, help="share of right answers at which it ends")
    parser.add_argument("--scenes", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args, overrides = parser.parse_known_args()
    cfg = validate_cfg(load_recipe(args.recipe, overrides))
    assert isinstance(cfg, EmbodiedConfig)
    env, model = cfg.env.eval, cfg.actor.model
    assert isinstance(env, LangPickEnvConfig), "the scenes are those of langpick"
    assert isinstance(model, VLAConfig)
    policy = learner(model)
    obs, cubes = scenes(env, args.scenes)
    grounding = Grounding(policy, obs, cubes, held_out=300)
    steps = grounding.train(args.steps, target=args.target, batch_size=args.batch_size, lr=args.lr, seed=args.seed)
    folder = find_model_folder(model.model_path)
    write_back(folder, policy)
    right = grounding.measure()
    report = {"right": min(right.values()), "by_question": right, "steps": steps, "seed": args.seed}
    (folder / "grounding.json").write_text(json.dumps(report) + "\n", encoding="utf-8")
    print(f"wrote {folder}: {report}")
    if min(right.values()) < args.target:
        raise SystemExit(f"{min(right.values()):.3f} of the answers are right, not {args.target}. Call again to go on.")


def write_back(folder: Path, policy: BasePolicy) -> None:
    """Replace the weights of a folder by the policy's; parts with files of their own stay as they are."""
    file = folder / "model.safetensors"
    trained = policy.state_dict()
    weights = {name: trained.get(name, tensor).detach().contiguous() for name, tensor in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
