"""Teach a tiny policy where the things that words name are, as large ones know from their pretraining.

    python toolkits/vla/ground_tiny.py langpick_grpo_openpi_tiny

Asks the recipe's model questions on scenes of its environment with the hand anywhere, and writes the weights back to
``actor.model.model_path``, with the share of right answers. First its images alone: where each cube is, until the
answers on held-out scenes are off by ``--image-target`` at most. Then the whole model: where the cube is that the
sentence names, where all cubes are, and how far the hand is from the named one, until the share of right answers is
``--target``. Either ends with ``--settle`` steps in which the learning rate falls: answers that name the right cube are
not exact yet. Without this stage imitation of demonstrations learns to ignore images.
Called again, it goes on from where it was. Further arguments are overrides of the recipe.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
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
_REPORT = 50


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


def image_parts(policy: BasePolicy) -> list[nn.Module]:
    """Return what turns images into what the language model reads."""
    if isinstance(policy, OpenVLAOFTPolicy):
        return [policy.vision_backbone, policy.projector]
    assert isinstance(policy, PiPolicy)
    parts = policy.paligemma_with_expert.parts
    return [parts["vision_tower"], parts["multi_modal_projector"]]


def patches(policy: BasePolicy, record: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return what the language model reads of images, [N, P, W]."""
    if isinstance(policy, OpenVLAOFTPolicy):
        return policy.see(record)
    assert isinstance(policy, PiPolicy)
    return policy.paligemma_with_expert.see([record[f"images.{key}"] for key in policy.cfg.image_keys])


def features(
    policy: BasePolicy, record: dict[str, torch.Tensor], generator: torch.Generator
) -> dict[str, torch.Tensor]:
    """Return what answers are read from: ``prefix`` [N, W], of images and words, and ``actions`` [N, R, K, E].

    The expert of a flow attends to keys and values, never to the language model's output: an answer that is read from
    the output may come from the last layer alone, and then says nothing to the expert. What velocities at noise are
    read from says it as well: their mean over the executed actions is one reading (``R``) of both axes (``K`` is 1).
    A policy of tokens chooses each number of each action by itself: there are ``C`` readings of either axis (``K`` is
    2), so that each place in the chunk learns what it is for.
    """
    if isinstance(policy, OpenVLAOFTPolicy):
        hidden = policy.hidden_states(record)
        places = hidden.view(len(hidden), policy.cfg.num_action_chunks, policy.cfg.action_dim, -1)
        return {"prefix": hidden[:, 0], "actions": places[:, :, :2]}
    assert isinstance(policy, PiPolicy)
    prefix = policy.prefix(record)
    rows = torch.arange(len(prefix.there))
    last = (prefix.there * torch.arange(prefix.there.shape[1])).argmax(1)
    words = torch.cat([tensor[rows, :, last].flatten(1) for tensor in prefix.keys_values[-1]], -1)
    noise = torch.randn(len(rows), 1, policy.horizon, policy.padded_dim, generator=generator)
    output = policy.expert_output(prefix, record["state"], noise, torch.ones(1))
    return {"prefix": words, "actions": output[:, :, : policy.cfg.num_action_chunks].mean(2, keepdim=True)}


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

    ``seen`` asks what the language model reads of images where the cubes are: each patch says how likely it is the one
    to ask about a cube, and where that cube then is. ``named`` and ``all`` ask for places, what the policy's head for
    actions sees of images and words; ``way`` asks what actions are read from how far the hand has to go. An answer on
    all cubes needs no word: it is found first, and what the word chooses among is then there.

    Args:
        policy: Learns.
        obs: Scenes.
        cubes: [M, 3, 2].
        held_out: Scenes at the end that are only asked about.
        seed: Of the weights that heads begin with.
    """

    def __init__(
        self, policy: BasePolicy, obs: Observation, cubes: torch.Tensor, *, held_out: int, seed: int = 0
    ) -> None:
        self.policy, self.obs, self.cubes, self.held_out = policy, obs, cubes, held_out
        first = torch.zeros(1, dtype=torch.int64)
        with torch.no_grad():
            record = self._record(first, first)
            width = patches(policy, record).shape[-1]
            seen = features(policy, record, torch.Generator())
        axes = seen["actions"].shape[2]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "grounding", "heads"))
            self.seen = nn.ModuleDict({"which": nn.Linear(width, 3), "place": nn.Linear(width, 2 * _BINS)})
            width = seen["prefix"].shape[-1]
            self.heads = nn.ModuleDict({"named": nn.Linear(width, 2 * _BINS), "all": nn.Linear(width, 6 * _BINS)})
            self.heads["way"] = nn.Linear(seen["actions"].shape[-1], 2 * _WAY_BINS // axes)

    def answers(self, rows: torch.Tensor, named: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return logits [N, numbers, bins] for scenes and the cubes that were named, both int64 [N], by question."""
        seen = features(self.policy, self._record(rows, named), generator)
        found = {name: self.heads[name](seen["prefix"]).view(len(rows), -1, _BINS) for name in ("named", "all")}
        found["way"] = self.heads["way"](seen["actions"]).view(len(rows), -1, _WAY_BINS)
        return found

    def truths(self, rows: torch.Tensor, named: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the right bins, int64 [N, numbers], by question; ``way`` has one number of each axis."""
        cubes = self.cubes[rows]
        way = self.cubes[rows, named] - self.obs["states"][rows, :2]
        return {
            "named": bins_of(self.cubes[rows, named], _AREA, _BINS),
            "all": bins_of(cubes, _AREA, _BINS).flatten(1),
            "way": bins_of(way, _WAYS, _WAY_BINS),
        }

    def see(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what images alone say of scenes, int64 [N]: log-likelihoods [N, 3] and places [N, 3, 2] of cubes.

        A likelihood is a mixture over patches.
        """
        looked = patches(self.policy, self._record(rows, torch.zeros_like(rows)))
        which = self.seen["which"](looked).log_softmax(1)
        place = self.seen["place"](looked).view(len(rows), -1, 1, 2, _BINS).log_softmax(-1)
        truths = bins_of(self.cubes[rows], _AREA, _BINS)[:, None, :, :, None]
        likelihood = place.expand(-1, -1, 3, -1, -1).gather(-1, truths.expand(-1, place.shape[1], -1, -1, -1))
        means = mean_of(place.squeeze(2), _AREA)
        return (which + likelihood.flatten(3).sum(-1)).logsumexp(1), torch.einsum("npc,npa->nca", which.exp(), means)

    def train_images(self, steps: int, *, target: float, batch_size: int, lr: float, seed: int, settle: int = 0) -> int:
        """Ask images alone where the cubes are; see ``train``.

        Args:
            steps: At most, before it settles.
            target: Mean distance between answers and cubes, in meters, at which it ends.
            batch_size: Scenes of a step.
            lr: Learning rate.
            seed: Of the scenes.
            settle: Steps that then follow, in which the learning rate falls to 0.

        Returns:
            Steps made.
        """
        learners: list[nn.Module] = [*image_parts(self.policy), self.seen]

        def loss(rows: torch.Tensor, named: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            del named, generator
            return -self.see(rows)[0].mean()

        def is_done() -> bool:
            distance = self.measure_images()
            print(f"  images: off by {100 * distance:.1f} cm", flush=True)
            return distance <= target

        parameters = [parameter for part in learners for parameter in part.parameters()]
        return self._train(
            parameters, loss, is_done, steps=steps, batch_size=batch_size, lr=lr, seed=seed, settle=settle
        )

    def train(self, steps: int, *, target: float, batch_size: int, lr: float, seed: int, settle: int = 0) -> int:
        """Ask the whole model random questions; report every 50 steps.

        Args:
            steps: At most, before it settles.
            target: Share of right answers to each question at which it ends.
            batch_size: Questions of a step.
            lr: Learning rate. It does not fall before the end: how many steps pass before answers get better differs
                widely.
            seed: Of the questions.
            settle: Steps that then follow, in which the learning rate falls to 0.

        Returns:
            Steps made.
        """

        def loss(rows: torch.Tensor, named: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            truths = self.truths(rows, named)
            losses = []
            for name, answer in self.answers(rows, named, generator).items():
                truth = truths[name].repeat(1, answer.shape[1] // truths[name].shape[1])
                losses.append(nn.functional.cross_entropy(answer.flatten(0, 1), truth.flatten()))
            return torch.stack(losses).sum()

        def is_done() -> bool:
            right, meters = self.measure()
            print(f"  words: right {right}, off by {meters} m", flush=True)
            return min(right.values()) >= target

        parameters = [*self.policy.parameters(), *self.heads.parameters()]
        return self._train(
            parameters, loss, is_done, steps=steps, batch_size=batch_size, lr=lr, seed=seed, settle=settle
        )

    def _train(
        self,
        parameters: list[nn.Parameter],
        loss_of: Callable[[torch.Tensor, torch.Tensor, torch.Generator], torch.Tensor],
        is_done: Callable[[], bool],
        *,
        steps: int,
        batch_size: int,
        lr: float,
        seed: int,
        settle: int,
    ) -> int:
        optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
        begin, step, end = time.process_time(), 0, steps + settle
        while step < end:
            optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / _WARMUP, (end - step) / max(settle, 1))
            generator = torch.Generator().manual_seed(derive_seed(seed, "grounding", step))
            rows = torch.randint(len(self.cubes) - self.held_out, (batch_size,), generator=generator)
            named = torch.randint(3, (batch_size,), generator=generator)
            loss = loss_of(rows, named, generator)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            step += 1
            if step % _REPORT == 0:
                print(f"step {step} loss {loss:.3f} cpu {time.process_time() - begin:.0f} s", flush=True)
                if is_done():
                    end = min(end, step + settle)
        return step

    @torch.no_grad()
    def measure_images(self) -> float:
        """Return how far answers of images are from the cubes of held-out scenes: the mean, in meters."""
        rows = self._held_out()
        return float((self.see(rows)[1] - self.cubes[rows]).norm(dim=-1).mean())

    @torch.no_grad()
    def measure(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the share of right answers on held-out scenes, and how far they are off in the mean, by question.

        Questions on the named cube; distances are in meters.
        """
        rows = self._held_out()
        named = rows % 3
        answers = self.answers(rows, named, torch.Generator().manual_seed(0))
        way = mean_of(answers["way"], _WAYS).view(len(rows), -1, 2).mean(1)
        places = {"named": mean_of(answers["named"], _AREA), "way": self.obs["states"][rows, :2] + way}
        cubes = self.cubes[rows]
        right = {name: round(right_share(place, cubes, named), 3) for name, place in places.items()}
        off = {name: (place - self.cubes[rows, named]).norm(dim=-1).mean() for name, place in places.items()}
        return right, {name: round(float(meters), 4) for name, meters in off.items()}

    def _held_out(self) -> torch.Tensor:
        return torch.arange(len(self.cubes) - self.held_out, len(self.cubes))

    def _record(self, rows: torch.Tensor, named: torch.Tensor) -> dict[str, torch.Tensor]:
        obs = select_rows(self.obs, rows)
        obs["task_descriptions"] = [DESCRIPTIONS[number] for number in named.tolist()]
        return self.policy.inputs.record(obs, torch.device("cpu"))


def main() -> None:
    """Ground the recipe's model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--image-steps", type=int, default=1000, help="of images alone, at most")
    parser.add_argument("--image-target", type=float, default=0.01, help="meters at which their answers end")
    parser.add_argument("--steps", type=int, default=3000, help="of the whole model, at most")
    parser.add_argument("--target", type=float, default=0.99, help="share of right answers at which it ends")
    parser.add_argument("--settle", type=int, default=500, help="steps at the end of either, in which the rate falls")
    parser.add_argument("--scenes", type=int, default=12000)
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
    grounding = Grounding(policy, obs, cubes, held_out=300, seed=args.seed)
    how = {"batch_size": args.batch_size, "seed": args.seed, "settle": args.settle}
    image_steps = grounding.train_images(args.image_steps, target=args.image_target, lr=2 * args.lr, **how)
    image_meters = round(grounding.measure_images(), 4)
    steps = grounding.train(args.steps, target=args.target, lr=args.lr, **how)
    folder = find_model_folder(model.model_path)
    write_back(folder, policy)
    right, meters = grounding.measure()
    made = {"image_steps": image_steps, "steps": steps, "seed": args.seed}
    report = {
        "right": min(right.values()),
        "by_question": right,
        "meters": meters,
        "image_meters": image_meters,
        **made,
    }
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
