"""Groups of a reasoning run that answer at once, and what a run over them has trained on."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.datasets.prompts import PromptSampler, PromptSet
from rlinf.data.messages.generation import Completion
from rlinf.data.messages.responses import Prompt, ResponseBatch, ResponseGroup, RewardedGroup
from rlinf.runners.reasoning_runner import ReasoningRunner
from rlinf.telemetry.responses import sample_rows
from rlinf.workers.reward.response_store import ResponseStore
from tests.unit.runners.reply_groups import Call, Group, death

PROMPTS = tuple(Prompt(index=index, token_ids=(index,), text=str(index)) for index in range(7))
BATCH, SIZE = 4, 2
RESTART = "runner.max_restarts=1"
# Weights arrive after somebody has begun to wait for them.
LATE_SECONDS = 0.005


class World:
    """Groups that answer at once, with the weights that they have; some calls end in a death instead.

    Attributes:
        trained: For each training, the step and the groups of responses that it had.
        store: What the reward group keeps; lost with it.
        begun: For each prompt that was asked, its number and the version of the engine's weights.
        teaches: Whether the answers to the prompt of a number score differently.
    """

    def __init__(self, *deaths: tuple[str, int, str], has_inference: bool = False) -> None:
        self.deaths = list(deaths)
        self.engine_version = self.actor_version = None
        self.teaches = lambda number: True
        self.prepared: list[ResponseGroup] = []
        self.store = ResponseStore()
        self.trained, self.begun, self.evaluated, self.positions = [], [], [], {}
        self.interrupt_in = None
        self.rollout = Group("rollout", 2, self.serve)
        self.groups = {
            "actor": Group("actor", 1, self.serve),
            "rollout": self.rollout,
            "reward": Group("reward", 1, self.serve),
        }
        if has_inference:
            self.groups["inference"] = Group("inference", 1, self.serve)

    def serve(self, call: Call) -> None:
        if self.deaths and (call.method, self.count(call.method)) == self.deaths[0][:2]:
            _, _, group = self.deaths.pop(0)
            call.fail(death(group))
            return
        if self.interrupt_in == (call.method, call.keys.get("step", call.keys.get("version", self.actor_version))):
            raise KeyboardInterrupt
        if call.method == "sync_model_from_actor":
            threading.Timer(LATE_SECONDS, self.receive, (call,)).start()
            return
        call.give(getattr(self, call.method, lambda call: {})(call))

    def count(self, method: str) -> int:
        return sum(call.method == method for group in self.groups.values() for call in group.calls)

    def generate(self, call: Call) -> None:
        keys = call.keys
        assert self.engine_version is not None, "asked before it had any weights"
        note = self.begun if keys["split"] == "train" else self.evaluated
        note.append((keys["group_id"], self.engine_version))
        completion = Completion(
            token_ids=(1, 2), logprobs=(-1.0, -1.0), versions=(self.engine_version,) * 2, finish_reason="stop"
        )
        batch = ResponseBatch.of(call.args[0], keys["group_id"], [completion] * keys["params"].n)
        self.store.put(keys["split"], ResponseGroup(prompt=call.args[0], texts=("",) * keys["params"].n, batch=batch))

    def score(self, call: Call) -> RewardedGroup:
        group = self.store.get(*call.args)
        responses = [replace(r, reward=float(r.index * self.teaches(r.group_id))) for r in group.batch.responses]
        self.store.replace(call.args[0], group, responses=tuple(responses))
        return RewardedGroup.of(responses)

    def discard(self, call: Call) -> None:
        self.store.discard(*call.args)

    def clear(self, call: Call) -> None:
        self.store.clear(*call.args)

    def write_samples(self, call: Call) -> None:
        path, split, group_ids = call.args
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("".join(sample_rows(self.store.get(split, number)) for number in group_ids))

    def compute_logprobs(self, call: Call) -> None:
        group = self.store.get("train", *call.args)
        assert set(group.batch.versions.tolist()) == {self.engine_version}
        self.store.replace("train", group, trainer_logprobs=torch.full(group.batch.logprobs.shape, -1.5))

    def receive(self, call: Call) -> None:
        self.engine_version = call.keys["version"]
        call.give(None)

    def relaunch(self, call: Call) -> None:
        if call is self.rollout.calls[-1]:
            self.engine_version = None
        if self.groups["reward"].calls and call is self.groups["reward"].calls[-1]:
            self.store = ResponseStore()

    def sync_model_to_rollout(self, call: Call) -> None:
        self.actor_version = call.keys["version"]

    def recv_responses(self, call: Call) -> None:
        self.prepared = [self.store.get("train", number) for number in call.args[0]]

    def compute_advantages(self, call: Call) -> Any:
        return {"rollout/version": float(self.actor_version)}

    def run_training(self, call: Call) -> Any:
        self.trained.append((call.keys["step"], self.prepared))
        return {}

    def pop_peak_memory(self, call: Call) -> Any:
        return (3 if call.rank else 2) << 30

    def save_checkpoint(self, call: Call) -> None:
        Path(call.args[0]).mkdir(parents=True)
        (Path(call.args[0]) / "state").write_text("saved")


TRAIN = PromptSet(PROMPTS, len(PROMPTS), 0)
VAL = {"val": PromptSet(PROMPTS[:3], 3, 0)}


def run(
    folder: Path,
    world: World,
    *overrides: str,
    start: bool = True,
    train: Any = TRAIN,
    val: Any = VAL,
    make: type[ReasoningRunner] = ReasoningRunner,
) -> Any:
    keys = (
        f"runner.logger.log_path={folder}",
        "runner.logger.logger_backends=[]",
        "runner.max_epochs=6",
        "runner.val_check_interval=-1",
        f"data.rollout_batch_size={BATCH}",
        f"algorithm.group_size={SIZE}",
        f"actor.global_batch_size={BATCH * SIZE}",
        "~runner.stop_at",
    )
    cfg = validate_cfg(load_recipe("tiny_math_grpo", [*keys, *overrides]))
    runner = make(cfg, **world.groups, train_prompts=train, val_prompts=val)
    runner.init_workers()
    if start:
        runner.run()
    return runner


def asked_in_order(count: int, first: int = 0) -> list[tuple[int, int]]:
    sampler = PromptSampler(PROMPTS, shuffle=True, seed=1234)
    drawn = [sampler.sample() for _ in range(first + count)]
    return [(number, prompt.index) for number, prompt in drawn[first:]]


def trained_in_order(world: World) -> list[tuple[int, int]]:
    """Return number and prompt of each group that was trained on, step after step."""
    for _, groups in world.trained:
        assert [[response.index for response in group.batch.responses] for group in groups] == [[*range(SIZE)]] * BATCH
    return [(group.group_id, group.prompt.index) for _, groups in world.trained for group in groups]


def staleness(world: World) -> list[int]:
    return [max(step - 1 - int(group.batch.versions.min()) for group in groups) for step, groups in world.trained]


def position(runner: Any, step: int) -> int:
    path = runner.logger.checkpoints.root / f"global_step_{step}" / "data" / "prompts.json"
    return json.loads(path.read_text())["position"]
