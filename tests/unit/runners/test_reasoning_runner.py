"""What a step trains on: how old its answers may be, in which order prompts come, and that a death loses none."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.answers import Answer, Prompt
from rlinf.data.prompts import PromptSampler, PromptSet
from rlinf.runners.reasoning_runner import ReasoningRunner
from tests.unit.runners.reply_groups import Group, death

PROMPTS = tuple(Prompt(index=index, token_ids=(index,), text=str(index)) for index in range(7))
BATCH, SIZE = 4, 2


class Late(Future):
    """A reply that comes after somebody has looked for it."""

    def __init__(self, come):
        super().__init__()
        self.come = come

    def done(self):
        was_done, come, self.come = super().done(), self.come, None
        if come is not None:
            come()
        return was_done


class World:
    """Groups that answer at once, with the weights that they have; some calls end in a death instead.

    Attributes:
        trained: For each training, the step and the answers that it had.
        begun: For each prompt that was asked, its number and the version of the engine's weights.
    """

    def __init__(self, *deaths):
        self.deaths = list(deaths)
        self.engine_version = None
        self.prepared = []
        self.trained, self.begun, self.evaluated, self.positions = [], [], [], {}
        self.interrupt_in = None
        self.rollout = Group("rollout", 2, self.serve)
        self.groups = {
            "actor": Group("actor", 1, self.serve),
            "rollout": self.rollout,
            "reward": Group("reward", 1, self.serve),
        }

    def serve(self, call):
        if self.deaths and (call.method, self.count(call.method)) == self.deaths[0][:2]:
            _, _, group = self.deaths.pop(0)
            call.fail(death(group))
            return
        if self.interrupt_in == (call.method, call.keys.get("step", call.keys.get("version"))):
            raise KeyboardInterrupt
        if call.method == "sync_model_from_actor":
            call.future = Late(lambda: self.receive(call))
            return
        call.give(getattr(self, call.method, lambda call: {})(call))

    def count(self, method):
        return sum(call.method == method for group in self.groups.values() for call in group.calls)

    def answer(self, call):
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

    def score(self, call):
        return call.args[0]

    def receive(self, call):
        self.engine_version = call.keys["version"]
        call.give(None)

    def relaunch(self, call):
        if call is self.rollout.calls[-1]:
            self.engine_version = None

    def prepare(self, call):
        self.prepared = call.args[0]
        return {"rollout/version": float(call.keys["version"])}

    def run_training(self, call):
        self.trained.append((call.keys["step"], self.prepared))
        return {}

    def save_checkpoint(self, call):
        Path(call.args[0]).mkdir(parents=True)


def run(folder, world, *overrides, start=True):
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
    prompts = PromptSet(PROMPTS, len(PROMPTS), 0)
    runner = ReasoningRunner(cfg, **world.groups, train_prompts=prompts, val_prompts=PromptSet(PROMPTS[:3], 3, 0))
    runner.init_workers()
    if start:
        runner.run()
    return runner


def asked_in_order(count, first=0):
    sampler = PromptSampler(PROMPTS, shuffle=True, seed=1234)
    drawn = [sampler.draw() for _ in range(first + count)]
    return [(number, prompt.index) for number, prompt in drawn[first:]]


def trained_in_order(world):
    """Return number and prompt of each group that was trained on, step after step."""
    for _, answers in world.trained:
        assert [answer.member for answer in answers] == list(range(SIZE)) * BATCH
    return [(a.group_id, a.prompt.index) for _, answers in world.trained for a in answers if a.member == 0]


def staleness(world):
    return [max(step - 1 - answer.versions[0] for answer in answers) for step, answers in world.trained]


@pytest.mark.parametrize(("threshold", "expected"), [("null", 0), (0, 0), (1, 1), (2, 2)])
def test_answers_are_as_stale_as_allowed_and_never_staler(tmp_path, threshold, expected):
    world = World()
    run(tmp_path, world, f"algorithm.staleness_threshold={threshold}")
    assert [step for step, _ in world.trained] == [1, 2, 3, 4, 5, 6]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert staleness(world) == [min(step, expected) for step in range(6)]
    # Nothing is asked that no step would train on.
    assert [number for number, _ in world.begun] == list(range(6 * BATCH))


def test_evaluations_ask_the_same_prompts_with_the_weights_of_their_step(tmp_path):
    world = World()
    runner = run(tmp_path, world, "runner.val_check_interval=3", "algorithm.staleness_threshold=1")
    assert world.evaluated == [(number, step) for step in (0, 3, 6) for number in range(3)]
    assert staleness(world) == [0, 1, 1, 1, 1, 1]
    rows = (runner.session.folder / "evaluations" / "step_00000003.jsonl").read_text().splitlines()
    assert [json.loads(row)["group"] for row in rows] == [0, 1, 2]


def test_only_an_evaluation_asks_nothing_to_train_on(tmp_path):
    world = World()
    run(tmp_path, world, "runner.only_eval=true")
    assert (world.begun, world.trained) == ([], [])
    assert [number for number, _ in world.evaluated] == [0, 1, 2]


def position(runner, step):
    path = runner.session.checkpoints.root / f"global_step_{step}" / "data" / "prompts.json"
    return json.loads(path.read_text())["position"]


@pytest.mark.parametrize("threshold", ["null", 2])
def test_a_resumed_run_goes_on_behind_what_was_trained_on(tmp_path, threshold):
    keys = (f"algorithm.staleness_threshold={threshold}", "runner.save_interval=2")
    runner = run(tmp_path, World(), *keys, "runner.max_epochs=4")
    assert [position(runner, step) for step in (2, 4)] == [2 * BATCH, 4 * BATCH]
    world = World()
    run(tmp_path, world, *keys, "runner.resume_dir=auto")
    assert [step for step, _ in world.trained] == [5, 6]
    assert trained_in_order(world) == asked_in_order(2 * BATCH, first=4 * BATCH)


RESTART = "runner.max_restarts=1"


@pytest.mark.parametrize("threshold", ["null", 2])
@pytest.mark.parametrize(
    "dies",
    [
        ("answer", 10, "rollout"),
        ("score", 10, "reward"),
        ("sync_model_from_actor", 5, "rollout"),
        ("pop_execution_times", 8, "reward"),
    ],
)
def test_the_death_of_an_engine_or_a_reward_costs_no_answer(tmp_path, threshold, dies):
    world = World(dies)
    run(tmp_path, world, RESTART, f"algorithm.staleness_threshold={threshold}")
    assert not world.deaths
    assert [step for step, _ in world.trained] == [1, 2, 3, 4, 5, 6]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert max(staleness(world)) <= (2 if threshold == 2 else 0)


def test_a_step_that_is_made_again_has_the_answers_that_it_had(tmp_path):
    world = World(("sleep", 5, "rollout"))
    run(tmp_path, world, RESTART, "rollout.enable_offload=true")
    assert not world.deaths
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert [number for number, _ in world.begun] == list(range(6 * BATCH))


@pytest.mark.parametrize("dies", [("prepare", 4, "actor"), ("run_training", 4, "actor")])
def test_an_actor_comes_back_at_its_checkpoint_and_asks_from_there(tmp_path, dies):
    world = World(dies)
    run(tmp_path, world, RESTART, "runner.save_interval=2", "algorithm.staleness_threshold=1")
    steps = [step for step, _ in world.trained]
    assert steps == [1, 2, 3, 3, 4, 5, 6]
    del world.trained[2]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)


def test_without_a_checkpoint_an_actor_begins_anew(tmp_path):
    world = World(("run_training", 3, "actor"))
    run(tmp_path, world, RESTART, "algorithm.staleness_threshold=1")
    assert [step for step, _ in world.trained] == [1, 2, 1, 2, 3, 4, 5, 6]
    del world.trained[:2]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)


@pytest.mark.parametrize(
    ("interrupted", "steps"), [(("prepare", 3), 3), (("run_training", 4), 3), (("sync_model_from_actor", 4), 4)]
)
def test_an_interrupted_run_saves_what_has_been_trained_on(tmp_path, interrupted, steps):
    world = World()
    world.interrupt_in = interrupted
    runner = run(tmp_path, world, "algorithm.staleness_threshold=1", start=False)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert len(world.trained) == steps
    assert position(runner, steps) == steps * BATCH
