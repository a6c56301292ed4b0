"""What the synchronous loop makes of the episodes under way: at a save, a resume, a death and an interrupt."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import CommTimeoutError, WorkerDiedError
from rlinf.runners.embodied_runner import EmbodiedRunner
from rlinf.telemetry.events import EVENTS_FILE


class Done:
    """A call of a group that has returned, or that fails when it is waited for."""

    def __init__(self, value: Any, error: Exception | None = None) -> None:
        self.value, self.error = value, error

    def done(self) -> bool:
        return True

    def raise_failure(self) -> None:
        if self.error is not None:
            raise self.error

    def wait(self, timeout: float | None = None) -> list[Any]:
        self.raise_failure()
        return [self.value]


class Group:
    """Notes calls of its methods; each has returned at once, with what ``answers`` say."""

    def __init__(self, name: str, calls: list[tuple[Any, ...]], answers: dict[str, Any]) -> None:
        self.name, self.calls, self.answers = name, calls, answers

    def relaunch(self, *, wait: bool) -> None:
        self.calls.append((self.name, "relaunch", None, None))

    def wait_ready(self) -> "Group":
        return self

    def close(self) -> None:
        self.calls.append((self.name, "close", None, None))

    def __getattr__(self, method: str) -> Any:
        def call(*args: Any, **keys: Any) -> Done:
            self.calls.append((self.name, method, keys.get("step"), keys.get("restart")))
            if method == "save_checkpoint":
                Path(args[0]).mkdir(parents=True)
                (Path(args[0]) / "state").write_text("saved")
            answer = self.answers.get(f"{self.name}.{method}", [] if method == "evaluate" else {})
            if callable(answer):
                answer = answer(keys.get("step"))
            return Done(None, answer) if isinstance(answer, Exception) else Done(answer)

        return call


def make_runner(tmp_path: Path, *overrides: str, **answers: Any) -> tuple[EmbodiedRunner, list[tuple[Any, ...]]]:
    keys = (f"runner.logger.log_path={tmp_path}", "runner.logger.logger_backends=[]", "runner.val_check_interval=-1")
    cfg: Any = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [*keys, *overrides]))
    calls: list[tuple[Any, ...]] = []
    groups: Any = {name: Group(name, calls, answers) for name in ("actor", "rollout", "env")}
    return EmbodiedRunner(cfg, **groups), calls


def events(runner: EmbodiedRunner) -> list[str]:
    lines = (runner.logger.folder / EVENTS_FILE).read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


def begun(calls: list[tuple[Any, ...]]) -> list[tuple[int, bool]]:
    return [(step, restart) for _, method, step, restart in calls if method == "interact"]


def test_saving_restarts_no_episode(tmp_path: Path) -> None:
    runner, calls = make_runner(tmp_path, "runner.save_interval=1", "runner.max_epochs=4")
    runner.run()
    assert begun(calls) == [(1, True), (2, False), (3, False), (4, False)]
    assert [step for _, method, step, _ in calls if method == "save_episodes"] == [1, 2, 3, 4]


@pytest.mark.parametrize("reason", [None, "the checkpoint holds none of env rank 0."])
def test_a_resume_continues_episodes_or_says_why_not(tmp_path: Path, reason: str | None) -> None:
    make_runner(tmp_path, "runner.save_interval=2", "runner.max_epochs=2")[0].run()
    keys = ("runner.resume_dir=auto", "runner.max_epochs=3")
    runner, calls = make_runner(tmp_path, *keys, **{"env.load_episodes": reason})
    runner.init_workers()
    runner.run()
    assert ("env", "load_episodes", 2, None) in calls
    assert begun(calls) == [(3, reason is not None)]
    told = [text for text in events(runner) if "new episodes" in text]
    assert told == ([] if reason is None else [f"Training goes on with new episodes: {reason}"])


@pytest.mark.parametrize("dead", ["rollout", "actor"])
def test_after_a_death_episodes_are_those_of_the_checkpoint_gone_back_to_or_new(tmp_path: Path, dead: str) -> None:
    keys = ("runner.save_interval=2", "runner.max_epochs=4", "runner.max_restarts=1")
    deaths = [WorkerDiedError("it was killed", group=dead, rank=0)]
    answers = {"rollout.generate": lambda step: deaths.pop() if step == 4 and deaths else {}, "env.load_episodes": None}
    runner, calls = make_runner(tmp_path, *keys, **answers)
    runner.run()
    went_back = dead == "actor"
    again = [(3, False), (4, False)] if went_back else [(4, True)]
    assert begun(calls) == [(1, True), (2, False), (3, False), (4, False), *again]
    assert [step for _, method, step, _ in calls if method == "load_episodes"] == ([2] if went_back else [])
    assert any("new episodes" in text for text in events(runner)) is not went_back


@pytest.mark.parametrize("is_stuck", [False, True])
def test_an_interrupted_run_saves_the_episodes_of_its_last_whole_step(tmp_path: Path, is_stuck: bool) -> None:
    runner, calls = make_runner(tmp_path, "runner.max_epochs=5")

    def generate(step: int | None) -> Any:
        if step == 3:
            if is_stuck:
                runner.env.answers["env.pop_execution_times"] = CommTimeoutError("env does not answer")  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        return {}

    runner.rollout.answers["rollout.generate"] = generate  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    tail = [call[:3] for call in calls[-5:]]
    assert ("rollout", "close", None) in tail
    if is_stuck:
        assert ("env", "close", None) in tail
        assert "save_episodes" not in {call[1] for call in tail}
        assert any("not saved" in text for text in events(runner))
    else:
        assert tail.index(("rollout", "close", None)) < tail.index(("env", "save_episodes", 2))
        assert ("env", "close", None) not in tail
    assert (runner.logger.checkpoints.root / "global_step_2" / "COMPLETE").exists()


def test_an_evaluation_by_itself_says_what_it_depends_on(tmp_path: Path) -> None:
    keys = ("runner.only_eval=true", "runner.eval_initial_policy=true")
    runner, calls = make_runner(tmp_path, *keys, **{"env.simulator_versions": {"simulator": "3.1"}})
    runner.run()
    record = json.loads((runner.logger.folder / "evaluations/step_00000000.json").read_text(encoding="utf-8"))
    assert record["versions"]["simulator"] == "3.1"
    assert record["env"]["env_type"] == "gymnasium"
    trained, calls = make_runner(tmp_path / "trained", "runner.val_check_interval=1", "runner.max_epochs=1")
    trained.run()
    assert "simulator_versions" not in {call[1] for call in calls}
