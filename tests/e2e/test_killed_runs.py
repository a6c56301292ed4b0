"""Every algorithm: a run whose driver is killed at a random step and that is resumed goes on as if nothing had been."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from rlinf.checkpoint import CheckpointManager, checkpoint_step
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.vla import PiConfig
from rlinf.data.datasets.minari import write_minari
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.models.control.success_classifier import ClassifierConfig, SuccessClassifier
from rlinf.runners.launch import launch_embodied, launch_offline
from tests.e2e.conftest import ASYNC_ENTRY, ENTRY, REPO, read_metrics
from tests.unit.data.frame_sets import frame_set
from toolkits.vla.make_tiny import TinyShape, write_tiny_pi

pytestmark = pytest.mark.timeout(900)
OFFLINE_ENTRY = REPO / "examples/embodiment/train_offline.py"

EVALUATION = ("env.eval.total_num_envs=2", "env.eval.max_steps_per_rollout_epoch=20", "env.eval.max_episode_steps=20")
SMALL = (
    *EVALUATION,
    "env.train.total_num_envs=8",
    "env.train.max_steps_per_rollout_epoch=40",
    "algorithm.update_epoch=2",
    "actor.global_batch_size=64",
    "actor.micro_batch_size=32",
)
# The replay is full after three steps: what is resumed has lost its oldest transitions.
OFF_POLICY = (
    *EVALUATION,
    "algorithm.update_epoch=7",
    "algorithm.replay_buffer.min_buffer_size=100",
    "algorithm.replay_buffer.capacity=200",
    "actor.global_batch_size=32",
    "actor.micro_batch_size=16",
)
METAWORLD = ("env.train.num_env_processes=0", "env.eval.num_env_processes=0", "env.eval.video_cfg.save_video=false")
OFFLINE = (*EVALUATION, "algorithm.update_epoch=20", "actor.global_batch_size=64", "actor.micro_batch_size=32")
PIXELS = (*SMALL, "actor.global_batch_size=80", "actor.micro_batch_size=40")
GLANCES = (
    *("env.eval.image_size=16", "env.eval.total_num_envs=2"),
    *("env.eval.max_steps_per_rollout_epoch=10", "env.eval.max_episode_steps=10"),
    *("actor.model.num_steps=2", "actor.global_batch_size=8", "actor.micro_batch_size=4"),
)
"""Few and small images, for models that are as small as they come."""
FLOW = (
    *GLANCES,
    *("env.train.image_size=16", "env.train.total_num_envs=8"),
    *("env.train.max_steps_per_rollout_epoch=10", "env.train.max_episode_steps=10"),
)
FLOW_GRPO = (
    *FLOW,
    *("algorithm.adv_type=grpo", "algorithm.loss_type=actor", "~algorithm.gamma", "~algorithm.gae_lambda"),
    *("algorithm.group_size=4", "env.train.group_size=4", "env.train.auto_reset=false"),
    *("actor.model.add_value_head=false", "~actor.model.value_hidden_dims"),
)
STEERED = (*FLOW, "algorithm.update_epoch=7", "algorithm.replay_buffer.min_buffer_size=80")
STEERED += ("algorithm.replay_buffer.capacity=160", "actor.model.noise_policy.image_size=16")
FRAMES = (
    *("env@env.eval=pixel_reach", *GLANCES, "algorithm.update_epoch=5"),
    *("actor.model.action_dim=2", "actor.model.state_dim=2", "actor.model.max_prompt_length=24"),
    *("actor.model.num_action_chunks=2", "actor.model.horizon=3"),
)


@dataclass(frozen=True)
class Case:
    """A recipe made small.

    Attributes:
        recipe: Its name.
        overrides: What makes it small.
        entry: The script that runs it.
        files: What it reads (of ``MAKERS``), by the key that names it.
        updates: Updates of the policy in one step.
        fills: Steps without any, in which a replay fills.
    """

    recipe: str
    overrides: tuple[str, ...]
    entry: Path = ENTRY
    files: Mapping[str, str] = field(default_factory=dict)
    updates: int = 0
    fills: int = 0


CASES = {
    "ppo": Case("gym_cartpole_ppo_mlp", (*SMALL, "actor.model.normalize_obs=true")),
    "ppo_fp16": Case("gym_pendulum_ppo_mlp", (*SMALL, "actor.model.precision=fp16")),
    "grpo": Case("metaworld_reach_grpo_mlp", (*SMALL, *METAWORLD, "actor.global_batch_size=32")),
    "sac": Case("gym_pendulum_sac_mlp", (*OFF_POLICY, "actor.model.normalize_obs=true")),
    "td3": Case("gym_pendulum_td3_mlp", OFF_POLICY),
    "crossq": Case("gym_pendulum_crossq_mlp", (*OFF_POLICY, "actor.micro_batch_size=32")),
    "sac_flow": Case("gym_pendulum_sac_flow", OFF_POLICY),
    "rlpd": Case("gym_mountain_car_rlpd_mlp", OFF_POLICY, files={"algorithm.demo_buffer.load_path": "demonstrations"}),
    "nft": Case("gym_pendulum_nft_flow", SMALL),
    "dagger": Case("metaworld_reach_dagger_mlp", (*SMALL, *METAWORLD)),
    "iql": Case("gym_pendulum_iql_mlp", OFFLINE, OFFLINE_ENTRY, {"data.path": "recordings"}),
    "bc": Case("gym_pendulum_bc_mlp", OFFLINE, OFFLINE_ENTRY, {"data.path": "recordings"}),
    "cnn": Case("pixel_reach_ppo_cnn", PIXELS),
    "learned_reward": Case(
        "pixel_reach_ppo_reward_model",
        (*PIXELS, "reward.rewards.success.reward_threshold=0.0"),
        files={"reward.rewards.success.model_path": "classifier"},
    ),
    "vla_grpo": Case("pixel_reach_ppo_openpi_tiny", FLOW_GRPO, files={"actor.model.model_path": "flow"}),
    "vla_dsrl": Case("pixel_reach_dsrl_openpi_tiny", STEERED, files={"actor.model.model_path": "flow"}),
    "vla_sft": Case(
        "langpick_sft_openpi_tiny",
        FRAMES,
        OFFLINE_ENTRY,
        {"actor.model.model_path": "flow", "data.path": "frames"},
    ),
}
"""One of each algorithm, and of what else has a state of its own."""
ASYNC_CASES = {
    "async_ppo": Case("gym_cartpole_async_ppo_mlp", SMALL, ASYNC_ENTRY, updates=10),
    "async_sac": Case(
        "gym_pendulum_async_sac_mlp",
        (*OFF_POLICY, "algorithm.replay_buffer.capacity=100000"),
        ASYNC_ENTRY,
        updates=7,
        fills=1,
    ),
}
CHEAP = {"sac", "iql", "vla_grpo", "vla_sft"}
"""Those that also run without ``--slow``."""


def parameters(cases: dict[str, Case]) -> list[Any]:
    marks = {name: [] if name in CHEAP else [pytest.mark.slow] for name in cases}
    for name, case in cases.items():
        if case.recipe.startswith("metaworld"):
            marks[name].append(pytest.mark.metaworld)
    return [pytest.param(case, id=name, marks=marks[name]) for name, case in cases.items()]


@pytest.fixture(scope="module")
def make_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Make what a recipe reads, by its name in ``MAKERS``."""
    folder = tmp_path_factory.mktemp("files")

    def make(name: str) -> Any:
        path = folder / name
        if not path.exists():
            MAKERS[name](path)
        return path

    return make


def write_recordings(path: Path) -> None:
    pytest.importorskip("h5py", reason="needs the package h5py")
    rng, ends = np.random.default_rng(0), np.arange(50) == 49
    arrays = [
        {
            "observations": rng.normal(size=(51, 3)),
            "actions": rng.uniform(-2, 2, size=(50, 1)),
            "rewards": -rng.random(50),
            "terminations": ends & False,
            "truncations": ends,
        }
        for _ in range(4)
    ]
    write_minari(path, [(episode, {}) for episode in arrays], {})


def write_demonstrations(path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    replay = ReplayBuffer(100)
    replay.add(
        Transitions(
            inputs={"states": torch.randn(100, 2, generator=generator)},
            actions=torch.randn(100, 1, 1, generator=generator).tanh(),
            rewards=torch.randn(100, generator=generator),
            next_inputs={"states": torch.randn(100, 2, generator=generator)},
            terminated=torch.arange(100) % 10 == 9,
            lengths=torch.ones(100, dtype=torch.int64),
        )
    )
    replay.save(path)


def write_classifier(path: Path) -> None:
    torch.manual_seed(0)
    SuccessClassifier(ClassifierConfig()).save(path)


def write_flow(path: Path) -> None:
    pytest.importorskip("transformers")
    cfg = PiConfig(model_type="openpi", model_path="", variant="pi0", action_dim=2, state_dim=2, horizon=6)
    words = ("reach the green disc", "task 0", "task 1")
    write_tiny_pi(path, TinyShape(image_size=16, patch_size=8, action_dim=2, state_dim=2, words=words), cfg)


MAKERS: dict[str, Callable[[Path], Any]] = {
    "classifier": write_classifier,
    "demonstrations": write_demonstrations,
    "flow": write_flow,
    "frames": frame_set,
    "recordings": write_recordings,
}


class Runs:
    """Starts, kills and resumes runs of one recipe, in a folder for each.

    Attributes:
        keys: Overrides of all of them.
    """

    def __init__(
        self, case: Any, keys: Any, start_run: Callable[..., Any], address: str | None, tmp_path: Path
    ) -> None:
        self.case, self.keys = case, keys
        self.start_run, self.address, self.tmp_path = start_run, address, tmp_path

    def to_the_end(self, name: str, last_step: Any, *overrides: str) -> Any:
        """Run in this process; returns the run's folder."""
        keys = (*self.keys, f"runner.max_epochs={last_step}", f"runner.logger.log_path={self.tmp_path / name}")
        cfg = validate_cfg(load_recipe(self.case.recipe, [*keys, *overrides]))
        (launch_offline if self.case.entry == OFFLINE_ENTRY else launch_embodied)(cfg)
        return self.tmp_path / name / self.case.recipe

    def kill(self, name: str, chance: random.Random, first: int, last: int) -> Any:
        """Start a run without end and SIGKILL its driver; returns the last step that it had recorded."""
        keys = (*self.keys, "runner.max_epochs=100000", f"runner.logger.log_path={self.tmp_path / name}")
        environment = {"RAY_ADDRESS": self.address}
        run = self.start_run(self.case.recipe, *keys, entry=self.case.entry, env=environment)
        records = self.tmp_path / name / self.case.recipe / "metrics.jsonl"
        step, deadline = chance.randint(first, last), time.monotonic() + 240
        while not (records.exists() and f'"step": {step},' in records.read_text()):
            if run.process.poll() is not None or time.monotonic() > deadline:
                run.process.kill()
                run.wait()
                pytest.fail(f"the run did not come to step {step}:\n{run.output[-4000:]}")
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        run.process.kill()
        run.wait()
        # The last line may be half of one.
        whole = records.read_text().rpartition("\n")[0]
        return whole.count("\n")


def saved_state(folder: Path, step: int, tmp_path: Path) -> dict[Any, Any]:
    """Return everything in a checkpoint of one rank, flat."""
    actor = folder / "checkpoints" / f"global_step_{step}" / "actor"
    whole = tmp_path / f"{folder.parent.name}.pt"
    dcp_to_torch_save(actor, whole)
    state = {"engine": torch.load(whole, weights_only=False)}
    if (actor / "learner.pt").exists():
        state["learner"] = torch.load(actor / "learner.pt")
    replays = [path.parent for path in actor.rglob("manifest.json")]
    for index, path in enumerate(sorted(replays)):
        contents = ReplayBuffer.open(path).contents()
        state[f"replay_{index}"] = contents.named()
    return flatten(state)


def flatten(value: dict[str, Any], prefix: str = "") -> dict[Any, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for name, part in value.items() for k, v in flatten(part, f"{prefix}.{name}").items()}


def assert_equal_states(actual: Any, expected: Any) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        same = torch.equal(actual[name], value) if isinstance(value, torch.Tensor) else actual[name] == value
        assert same, name


@pytest.fixture
def begin(
    one_node: None, make_file: Callable[..., Any], start_run: Callable[..., Any], tmp_path: Path
) -> Callable[..., Runs]:
    """Return the ``Runs`` of a case."""

    def begin(case: Case, *keys: str) -> Runs:
        files = (f"{key}={make_file(name)}" for key, name in case.files.items())
        return Runs(case, (*case.overrides, *files, *keys), start_run, one_node, tmp_path)

    return begin


@pytest.mark.parametrize("case", parameters(CASES))
def test_a_killed_and_resumed_run_equals_an_undisturbed_one(
    begin: Callable[..., Runs], tmp_path: Path, case: Case
) -> None:
    # Evaluations, checkpoints and kills fall on different steps.
    runs = begin(case, "runner.save_interval=2", "runner.val_check_interval=3")
    last = runs.kill("killed", random.Random(case.recipe), 3, 6)
    folder = tmp_path / "killed" / case.recipe
    saved = newest_checkpoint(folder)
    before = (folder / "metrics.jsonl").read_text().splitlines()[: saved + 1]
    assert saved >= 2
    assert runs.to_the_end("killed", last + 3, "runner.resume_dir=auto") == folder
    # The run did not begin anew: what was recorded before is still there, with the times of then.
    assert (folder / "metrics.jsonl").read_text().splitlines()[: saved + 1] == before
    undisturbed = runs.to_the_end("undisturbed", last + 3, "runner.save_interval=-1")
    assert "new episodes" not in (folder / "events.jsonl").read_text()
    assert read_metrics(folder) == read_metrics(undisturbed)
    states = (saved_state(path, last + 3, tmp_path) for path in (folder, undisturbed))
    assert_equal_states(*states)


@pytest.mark.parametrize("case", parameters(ASYNC_CASES))
def test_a_killed_asynchronous_run_goes_on_without_gap_or_repetition(
    begin: Callable[..., Runs], tmp_path: Path, case: Case
) -> None:
    runs = begin(case, "runner.save_interval=4", "runner.val_check_interval=-1", "algorithm.staleness_threshold=2")
    last = runs.kill("killed", random.Random(case.recipe), 5, 9)
    folder = tmp_path / "killed" / case.recipe
    saved = newest_checkpoint(folder)
    assert saved >= 4
    end = last + 5
    runs.to_the_end("killed", end, "runner.resume_dir=auto")
    records = {record["step"]: record for record in read_metrics(folder)}
    assert [record["step"] for record in read_metrics(folder)] == list(range(1, end + 1))
    staleness = [record["rollout/staleness_max"] for record in records.values()]
    assert 0 < max(staleness) <= 2
    # Versions go on from that of the checkpoint.
    assert records[saved + 1]["rollout/staleness_max"] == 0
    state = saved_state(folder, end, tmp_path)
    assert state[".engine.extra.num_steps"] == case.updates * (end - case.fills)
    if "train/replay_size" in records[end]:
        assert [record["train/replay_size"] for record in records.values()] == [64 * step for step in records]
        assert len(torch.unique(state[".replay_0.inputs.states"], dim=0)) > 63 * end


def newest_checkpoint(folder: Path) -> int:
    checkpoint = CheckpointManager(folder / "checkpoints").resolve("auto")
    return 0 if checkpoint is None else checkpoint_step(checkpoint)
