"""The sides of ``reasoning_throughput.py``: the same GRPO steps by RLinf and by TRL, in the process that calls."""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECIPE = "tiny_math_grpo"
MAX_CONTEXT_TOKENS = 256
GROUP_SIZE, MICRO_BATCH, UPDATES = 8, 64, 2
LEARNING_RATE, CLIP_LOW, CLIP_HIGH = 3e-4, 0.2, 0.28
# Steps in which caches and allocators warm up.
UNTIMED_STEPS = 2


@dataclass(frozen=True)
class Case:
    """A size of GRPO steps.

    Attributes:
        hidden_size: Width of the model.
        num_layers: Its layers.
        num_prompts: Prompts of a step.
        max_numbers: Questions add two to so many numbers.
        answer_tokens: Most tokens of an answer.
        num_ends: Tokens of the vocabulary that end an answer; with 0, every answer has the most tokens.
    """

    hidden_size: int
    num_layers: int
    num_prompts: int
    max_numbers: int
    answer_tokens: int
    num_ends: int = 0

    @property
    def min_tokens(self) -> int:
        """Tokens before an answer may end."""
        return 0 if self.num_ends else self.answer_tokens

    @property
    def batch_size(self) -> int:
        """Answers of an optimizer step."""
        return self.num_prompts * GROUP_SIZE // UPDATES


CASES = {
    "equal lengths": Case(128, 4, num_prompts=64, max_numbers=2, answer_tokens=8),
    # An answer of a model that has not learned ends at each token with a probability of 1/16.
    "own lengths": Case(192, 6, num_prompts=16, max_numbers=12, answer_tokens=48, num_ends=8),
}
FIRST_END = 90
# Trainer and engine have a core each, and take turns or work at the same time.
_TWO_SLOTS = (
    "cluster.cpu_slots_per_node=2",
    "~cluster.component_placement",
    "+cluster.component_placement={actor: 0, rollout: 1, reward: 1}",
)
MODES = {
    "collocated": (),
    "in turns": _TWO_SLOTS,
    "asynchronous": (*_TWO_SLOTS, "algorithm.staleness_threshold=2"),
}


def share_of_digits(text: str) -> float:
    """Return the reward of an answer: a model that knows nothing earns some, and can learn to earn more."""
    return sum(map(str.isdigit, text)) / max(len(text), 1)


def reward_rlinf(queries: list[Any]) -> list[float]:
    return [share_of_digits(query.response) for query in queries]


def reward_trl(completions: list[str], **_: Any) -> list[float]:
    return list(map(share_of_digits, completions))


def tree_cpu_seconds() -> float:
    """Return the CPU seconds that this process and all below it have used."""
    import psutil

    own = psutil.Process()
    seconds = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


@dataclass
class Steps:
    """When steps began and ended, the CPU seconds used by then, and how long each waited for rewarded answers."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    answering_seconds: list[float] = field(default_factory=list)

    def mark(self) -> None:
        self.cpu.append(tree_cpu_seconds())
        self.wall.append(time.perf_counter())
        self.answering_seconds.append(0.0)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.answering_seconds[-1] += time.perf_counter() - started

    def medians(self) -> dict[str, float]:
        """Return what the timed steps took."""
        wall, cpu = (
            [end - begin for begin, end in zip(marks[UNTIMED_STEPS:], marks[UNTIMED_STEPS + 1 :], strict=False)]
            for marks in (self.wall, self.cpu)
        )
        answering = self.answering_seconds[UNTIMED_STEPS : UNTIMED_STEPS + len(wall)]
        return {
            "step_seconds": statistics.median(wall),
            "step_cpu_seconds": statistics.median(cpu),
            "answering_seconds": statistics.median(answering),
            "training_seconds": statistics.median(all_ - part for all_, part in zip(wall, answering, strict=True)),
            "share_answering": sum(answering) / sum(wall),
        }


def make_inputs(case: Case, folder: Path) -> None:
    """Write a model that has not learned yet, and questions."""
    from examples.reasoning.make_tiny_model import make_tiny_model

    make_tiny_model(
        folder / "model",
        hidden_size=case.hidden_size,
        num_layers=case.num_layers,
        max_context_tokens=MAX_CONTEXT_TOKENS,
    )
    settings = folder / "model/generation_config.json"
    known = json.loads(settings.read_text())
    ends = [known["eos_token_id"], *range(FIRST_END, FIRST_END + case.num_ends)]
    settings.write_text(json.dumps(known | {"eos_token_id": ends}))
    draw = random.Random(0)
    questions = (
        "+".join(str(draw.randrange(10, 100)) for _ in range(draw.randint(2, case.max_numbers)))
        for _ in range(16 * case.num_prompts)
    )
    lines = (json.dumps({"prompt": f"{question}="}) + "\n" for question in questions)
    (folder / "train.jsonl").write_text("".join(lines))


def load_rlinf(case: Case, folder: Path, *overrides: str) -> Any:
    """Return the recipe for a case."""
    from rlinf.config import load_recipe, validate_cfg

    function = f"{Path(__file__).stem}:{reward_rlinf.__name__}"
    keys = (
        "~runner.stop_at",
        "runner.val_check_interval=-1",
        "runner.save_hf=false",
        "runner.enable_dynamic_batch_size=false",
        "~runner.max_tokens_per_mbs",
        f"runner.logger.log_path={folder}",
        f"data.train_data_paths=[{folder}/train.jsonl]",
        "data.val_data_paths=[]",
        "data.prompt_key=prompt",
        "data.answer_key=null",
        "data.apply_chat_template=false",
        f"data.max_prompt_length={MAX_CONTEXT_TOKENS - case.answer_tokens}",
        f"data.rollout_batch_size={case.num_prompts}",
        f"algorithm.group_size={GROUP_SIZE}",
        "algorithm.old_logprobs_in_update=true",
        f"algorithm.clip_ratio_low={CLIP_LOW}",
        f"algorithm.clip_ratio_high={CLIP_HIGH}",
        f"algorithm.sampling_params.max_new_tokens={case.answer_tokens}",
        f"algorithm.sampling_params.min_new_tokens={case.min_tokens}",
        "~reward.rewards",
        f"+reward.rewards={{digits: {{reward_type: function, call: batch, function: '{function}'}}}}",
        # TRL generates the answers of a step together, too.
        f"rollout.max_running_requests={case.num_prompts * GROUP_SIZE}",
        f"actor.global_batch_size={case.batch_size}",
        f"actor.micro_batch_size={MICRO_BATCH}",
        f"actor.model.model_path={folder}/model",
        f"actor.optim.lr={LEARNING_RATE}",
    )
    return validate_cfg(load_recipe(RECIPE, [*keys, *overrides]))


def run_rlinf(case: Case, steps: int, folder: Path, *overrides: str) -> dict[str, float]:
    """Train through Ray."""
    from rlinf.runners.launch import launch
    from rlinf.runners.reasoning_runner import ReasoningRunner

    marks = Steps()

    class TimedRunner(ReasoningRunner):
        def make_step(self) -> Any:
            marks.mark()
            return super().make_step()

        def generate_rollouts(self) -> Any:
            with marks.answering():
                return super().generate_rollouts()

    # The last step only ends the one before it: a checkpoint follows it.
    cfg = load_rlinf(case, folder, f"runner.max_epochs={UNTIMED_STEPS + steps + 1}", *overrides)
    launch(cfg, TimedRunner)
    lines = (folder / RECIPE / "metrics.jsonl").read_text().splitlines()
    lengths = [json.loads(line)["rollout/response_length"] for line in lines[UNTIMED_STEPS:-1]]
    return marks.medians() | {"answer_length": statistics.fmean(lengths)}


def trl_arguments(case: Case, steps: int, folder: Path) -> Any:
    """Return what TRL is told: the same as RLinf, as far as both know it."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(folder / "trl"),
        model_init_kwargs={"dtype": "float32"},
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        max_steps=UPDATES * (UNTIMED_STEPS + steps),
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=case.batch_size // MICRO_BATCH,
        generation_batch_size=UPDATES * case.batch_size,
        num_generations=GROUP_SIZE,
        max_completion_length=case.answer_tokens,
        generation_kwargs={"min_new_tokens": case.min_tokens},
        temperature=1.0,
        top_k=0,
        beta=0.0,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        loss_type="dapo",
        scale_rewards="group",
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        weight_decay=0.0,
        max_grad_norm=1.0,
        logging_steps=UPDATES,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def run_trl(case: Case, steps: int, folder: Path) -> dict[str, float]:
    """Train with TRL in this process."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOTrainer

    torch.set_num_threads(1)
    marks = Steps()

    class Marking(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            marks.mark()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % UPDATES == 0:
                marks.mark()

    class TimedTrainer(GRPOTrainer):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            with marks.answering():
                return super()._generate(*args, **kwargs)

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            with marks.answering():
                return super()._calculate_rewards(*args, **kwargs)

    lines = (folder / "train.jsonl").read_text().splitlines()
    trainer = TimedTrainer(
        model=str(folder / "model"),
        reward_funcs=reward_trl,
        train_dataset=Dataset.from_list([json.loads(line) for line in lines]),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
        callbacks=[Marking()],
        args=trl_arguments(case, steps, folder),
    )
    trainer.train()
    known = [entry["completions/mean_length"] for entry in trainer.state.log_history if "loss" in entry]
    return marks.medians() | {"answer_length": statistics.fmean(known[UNTIMED_STEPS:])}


CONTENDERS = {"rlinf": run_rlinf, "trl": run_trl}
