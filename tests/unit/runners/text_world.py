"""Groups of a reasoning run that answer at once, and what a run over them has trained on."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.datasets.prompts import PromptSampler, PromptSet
from rlinf.data.messages.answers import Answer, Prompt
from rlinf.runners.reasoning_runner import ReasoningRunner
from tests.unit.runners.reply_groups import Call, Group, death

PROMPTS = tuple(Prompt(index=index, token_ids=(index,), text=str(index)) for index in range(7))
BATCH, SIZE = 4, 2
RESTART = "runner.max_restarts=1"
# Weights arrive after somebody has begun to wait for them.
LATE_SECONDS = 0.005


class World:
    """Groups that answer at once, with the weights that they have; some calls end in a death instead.

    Attributes:
        trained: For each training, the step and the answers that it had.
        begun: For each prompt that was asked, its number and the version of the engine's weights.
        teaches: Whether the answers to the prompt of a number score differently.
    """

    def __init__(self, *deaths: tuple[str, int, str], has_inference: bool = False) -> None:
        self.deaths = list(deaths)
        self.engine_version = self.actor_version = None
        self.teaches = lambda number: True
        self.prepared = []
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

    def answer(self, call: Call) -> Any:
        asked = call.keys
        assert self.engine_version is not None, "asked before it had any weights"
        note = self.begun if asked["purpose"] == "train" else self.evaluated
        note.append((asked["group_id"], self.engine_version))
        return [
            Answer(
                group_id=asked["group_id"],
                member=member,
                prompt=call.args[0],
                token_ids=(1, 2),
                logprobs=(-1.0, -1.0),
                versions=(self.engine_version,) * 2,
                loss_mask=(True, True),
                finish_reason="stop",
            )
            for member in range(asked["params"].n)
        ]

    def score(self, call: Call) -> Any:
        return [replace(answer, reward=float(answer.member * self.teaches(answer.group_id))) for answer in call.args[0]]

    def compute_logprobs(self, call: Call) -> Any:
        assert {version for answer in call.args[0] for version in answer.versions} == {self.engine_version}
        return [replace(answer, trainer_logprobs=(-1.5, -1.5)) for answer in call.args[0]]

    def receive(self, call: Call) -> None:
        self.engine_version = call.keys["version"]
        call.give(None)

    def relaunch(self, call: Call) -> None:
        if call is self.rollout.calls[-1]:
            self.engine_version = None

    def sync_model_to_rollout(self, call: Call) -> None:
        self.actor_version = call.keys["version"]

    def compute_advantages(self, call: Call) -> Any:
        self.prepared = call.args[0]
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
    drawn = [sampler.draw() for _ in range(first + count)]
    return [(number, prompt.index) for number, prompt in drawn[first:]]


def trained_in_order(world: World) -> list[tuple[int, int]]:
    """Return number and prompt of each group that was trained on, step after step."""
    for _, answers in world.trained:
        assert [answer.member for answer in answers] == list(range(SIZE)) * BATCH
    return [(a.group_id, a.prompt.index) for _, answers in world.trained for a in answers if a.member == 0]


def staleness(world: World) -> list[int]:
    return [max(step - 1 - answer.versions[0] for answer in answers) for step, answers in world.trained]


def position(runner: Any, step: int) -> int:
    path = runner.logger.checkpoints.root / f"global_step_{step}" / "data" / "prompts.json"
    return json.loads(path.read_text())["position"]
