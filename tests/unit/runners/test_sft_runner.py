"""What each step of fine-tuning learns, when evaluations ask engines, and that nothing learns an example twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.datasets.examples import Example, ExampleSet
from rlinf.data.datasets.prompts import PromptSampler
from rlinf.data.messages.responses import Prompt, RewardedGroup
from rlinf.runners.sft_runner import SftRunner, with_length
from tests.unit.data.messages.response_samples import Sample
from tests.unit.runners.reply_groups import Group, death

EXAMPLES = tuple(
    Example(prompt_ids=(number,), answer_ids=(1, 2, 3), loss_mask=(True, False, True)) for number in range(7)
)
BATCH = 4
VAL = ExampleSet(
    examples=EXAMPLES[:3],
    prompts=tuple(Prompt(index=number, token_ids=(number,), text=str(number)) for number in range(3)),
    num_rows=3,
)
ALONE = ("~rollout", "~reward", "~algorithm", "cluster.component_placement={actor: 0}")


class World:
    """Groups that answer at once; some calls end in a death or an interrupt instead.

    Attributes:
        trained: For each training, the step and the examples that it had.
        log: The calls that concern evaluations, in order.
    """

    def __init__(self, *deaths: tuple[str, int, str], interrupt_in: tuple[str, int] | None = None) -> None:
        self.deaths, self.interrupt_in = list(deaths), interrupt_in
        self.prepared, self.trained, self.log = [], [], []
        self.tables = []
        self.groups = {name: Group(name, 1, self.serve) for name in ("actor", "rollout", "reward")}

    def serve(self, call: Any) -> None:
        count = sum(call.method == other.method for group in self.groups.values() for other in group.calls)
        if self.deaths and (call.method, count) == self.deaths[0][:2]:
            call.fail(death(self.deaths.pop(0)[2]))
            return
        if self.interrupt_in == (call.method, count):
            raise KeyboardInterrupt
        call.give(getattr(self, call.method, lambda call: {})(call))

    def compute_advantages(self, call: Any) -> None:
        self.prepared = [example.prompt_ids[0] for example in call.args[0]]

    def run_training(self, call: Any) -> dict[str, float]:
        self.trained.append((call.keys["step"], self.prepared))
        return {"train/loss": 1.0}

    def evaluate(self, call: Any) -> dict[str, float]:
        self.log.append("loss")
        return {"loss": float(len(call.args[0])), "token_accuracy": 0.75}

    def pop_peak_memory(self, call: Any) -> int:
        return 1 << 30

    def sync_model_from_actor(self, call: Any) -> None:
        self.log.append(f"weights {call.keys['version']}")

    def sleep(self, call: Any) -> None:
        self.log.append("sleep")

    def wake(self, call: Any) -> None:
        self.log.append("wake")

    def generate(self, call: Any) -> None:
        self.log.append(f"ask {call.args[0].index}")

    def score(self, call: Any) -> RewardedGroup:
        return RewardedGroup.of([Sample(group_id=call.args[1]).response])

    def write_samples(self, call: Any) -> None:
        self.tables.append((Path(call.args[0]).name, *call.args[1:]))

    def save_checkpoint(self, call: Any) -> None:
        Path(call.args[0]).mkdir(parents=True)
        (Path(call.args[0]) / "state").write_text("saved")


def make_runner(folder: Path, world: World, *overrides: str, val: Any = None) -> SftRunner:
    keys = (
        f"runner.logger.log_path={folder}",
        "runner.logger.logger_backends=[]",
        "runner.max_steps=6",
        "runner.val_check_interval=3",
        f"actor.global_batch_size={BATCH}",
        "~runner.stop_at",
    )
    cfg = validate_cfg(load_recipe("tiny_math_sft", [*keys, *overrides]))
    groups = {name: group for name, group in world.groups.items() if name in cfg.group_names}
    train = None if cfg.runner.only_eval else ExampleSet(examples=EXAMPLES, prompts=(), num_rows=7)
    runner = SftRunner(with_length(cfg, len(EXAMPLES)), **groups, train=train, val=val or {"val": VAL})
    runner.init_workers()
    return runner


def run(folder: Path, world: World, *overrides: str, val: dict[str, ExampleSet] | None = None) -> SftRunner:
    runner = make_runner(folder, world, *overrides, val=val)
    runner.run()
    return runner


def drawn(count: int, first: int = 0) -> list[int]:
    sampler = PromptSampler(EXAMPLES, shuffle=True, seed=1234)
    return [sampler.sample()[1].prompt_ids[0] for _ in range(first + count)][first:]


def learned(world: World) -> list[Any]:
    return [number for _, batch in world.trained for number in batch]


def records(runner: SftRunner) -> list[Any]:
    return [json.loads(line) for line in (runner.logger.folder / "metrics.jsonl").read_text().splitlines()]


def test_steps_go_through_the_data_epoch_after_epoch(tmp_path: Path) -> None:
    world = World()
    runner = run(tmp_path, world, *ALONE)
    assert [step for step, _ in world.trained] == [1, 2, 3, 4, 5, 6]
    assert learned(world) == drawn(6 * BATCH)
    assert sorted(learned(world)[:7]) == sorted(learned(world)[7:14]) == list(range(7))
    last = records(runner)[-1]
    assert last["train/epoch"] == pytest.approx(6 * BATCH / 7)
    assert last["train/tokens"] == 2 * BATCH
    assert last["time/tokens_per_second"] == pytest.approx(4 * last["time/samples_per_second"])


def test_without_engines_evaluations_measure_loss_and_accuracy(tmp_path: Path) -> None:
    world = World()
    runner = run(tmp_path, world, *ALONE)
    assert world.log == ["loss"] * 3
    assert [r["step"] for r in records(runner) if "eval/loss" in r] == [0, 3, 6]
    assert records(runner)[-1]["eval/token_accuracy"] == 0.75
    assert "eval/accuracy" not in records(runner)[-1]
    assert not any(call.method.startswith("sync") for call in world.groups["actor"].calls)


def test_several_sets_are_told_apart_and_weighed_by_their_tokens(tmp_path: Path) -> None:
    other = ExampleSet(examples=EXAMPLES[3:4], prompts=VAL.prompts[:2], num_rows=1)
    last = records(run(tmp_path, World(), val={"val": VAL, "other": other}))[-1]
    assert (last["eval/val/loss"], last["eval/other/loss"]) == (3.0, 1.0)
    assert last["eval/loss"] == pytest.approx((3 * 3.0 + 1.0) / 4)
    assert {"eval/accuracy", "eval/val/accuracy", "eval/other/accuracy"} <= set(last)


def test_engines_get_the_weights_of_evaluations_alone(tmp_path: Path) -> None:
    world = World()
    runner = run(tmp_path, world)
    assert world.log == [
        f"{word}" for step in (0, 3, 6) for word in (f"weights {step}", "loss", "ask 0", "ask 1", "ask 2")
    ]
    assert {"eval/loss", "eval/token_accuracy", "eval/accuracy"} <= set(records(runner)[-1])
    assert world.tables == [(f"step_0000000{step}.jsonl", "eval", [0, 1, 2]) for step in (0, 3, 6)]


def test_engines_sleep_from_one_evaluation_to_the_next(tmp_path: Path) -> None:
    world = World()
    run(tmp_path, world, "rollout.enable_offload=true")
    told = [word for word in world.log if not word.startswith(("ask", "loss"))]
    assert told == ["wake", "weights 0", "sleep", "wake", "weights 3", "sleep", "wake", "weights 6"]


def test_an_engine_that_comes_back_between_evaluations_is_put_to_sleep_again(tmp_path: Path) -> None:
    world = World(("pop_execution_times", 2, "rollout"))  # The second to be asked, after the first step.
    run(tmp_path, world, "rollout.enable_offload=true", "runner.max_restarts=1")
    assert not world.deaths
    told = [word for word in world.log if not word.startswith(("ask", "loss"))]
    assert told == ["wake", "weights 0", "sleep", "sleep", "wake", "weights 3", "sleep", "wake", "weights 6"]


def test_only_an_evaluation_learns_nothing(tmp_path: Path) -> None:
    world = World()
    run(tmp_path, world, "runner.only_eval=true")
    assert world.trained == []
    assert world.log == ["weights 0", "loss", "ask 0", "ask 1", "ask 2"]


def position(runner: SftRunner, step: int) -> Any:
    path = runner.logger.checkpoints.root / f"global_step_{step}" / "data" / "examples.json"
    return json.loads(path.read_text())["position"]


def test_a_resumed_run_goes_on_behind_what_was_learned(tmp_path: Path) -> None:
    runner = run(tmp_path, World(), *ALONE, "runner.max_steps=4", "runner.save_interval=2")
    assert [position(runner, step) for step in (2, 4)] == [2 * BATCH, 4 * BATCH]
    world = World()
    run(tmp_path, world, *ALONE, "runner.resume_dir=auto")
    assert [step for step, _ in world.trained] == [5, 6]
    assert learned(world) == drawn(2 * BATCH, first=4 * BATCH)


@pytest.mark.parametrize("dies", [("compute_advantages", 4, "actor"), ("run_training", 4, "actor")])
def test_an_actor_that_dies_comes_back_at_its_checkpoint(tmp_path: Path, dies: tuple[str, int, str]) -> None:
    world = World(dies)
    run(tmp_path, world, *ALONE, "runner.max_restarts=1", "runner.save_interval=2")
    assert [step for step, _ in world.trained] == [1, 2, 3, 3, 4, 5, 6]
    del world.trained[2]
    assert learned(world) == drawn(6 * BATCH)


@pytest.mark.parametrize(
    "dies", [("generate", 5, "rollout"), ("sync_model_from_actor", 2, "rollout"), ("score", 5, "reward")]
)
def test_the_death_of_an_engine_costs_an_evaluation_nothing(tmp_path: Path, dies: tuple[str, int, str]) -> None:
    world = World(dies)
    runner = run(tmp_path, world, "runner.max_restarts=1", "rollout.enable_offload=true")
    assert not world.deaths
    assert learned(world) == drawn(6 * BATCH)
    assert [r["step"] for r in records(runner) if "eval/accuracy" in r] == [0, 3, 6]


@pytest.mark.parametrize(("interrupted", "steps"), [(("compute_advantages", 3), 2), (("run_training", 3), 2)])
def test_an_interrupted_run_saves_what_has_been_learned(
    tmp_path: Path, interrupted: tuple[str, int], steps: int
) -> None:
    world = World(interrupt_in=interrupted)
    runner = make_runner(tmp_path, world, *ALONE)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert len(world.trained) == steps
    assert position(runner, steps) == steps * BATCH


def lengths(num_examples: int, *overrides: str) -> tuple[int, int | None]:
    keys = ("actor.global_batch_size=32", "runner.max_epochs=3", *overrides)
    cfg = with_length(validate_cfg(load_recipe("tiny_math_sft", keys)), num_examples)
    return cfg.runner.total_steps, cfg.actor.optim.total_training_steps


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), (10, 10)),  # 3 x 100 / 32, rounded up.
        (("algorithm.update_epoch=4",), (3, 12)),
        (("runner.max_steps=7",), (7, 7)),
        (("actor.optim.total_training_steps=5",), (10, 5)),
        (("actor.optim.lr_warmup_steps=20",), (10, 21)),
        (("actor.optim.lr_scheduler=constant", "~actor.optim.min_lr_ratio"), (10, None)),
    ],
)
def test_passes_over_the_data_become_steps_and_the_learning_rate_falls_until_the_last(
    overrides: tuple[str, ...], expected: tuple[int, int | None]
) -> None:
    assert lengths(100, *overrides) == expected


def test_a_run_that_only_evaluates_needs_no_data() -> None:
    assert lengths(0, "runner.only_eval=true")[0] == 1
