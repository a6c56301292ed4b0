"""When rollouts begin: as early as the bound on staleness allows, and never past what all workers are needed for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.async_embodied_runner import AsyncEmbodiedRunner


class Done:
    """A call of a group that has returned."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def done(self) -> bool:
        return True

    def raise_failure(self) -> None:
        pass

    def wait(self) -> list[Any]:
        return [self.value]


class Group:
    """Notes calls of its methods; each has returned at once."""

    def __init__(self, name: str, calls: Any) -> None:
        self.name, self.calls = name, calls

    def __getattr__(self, method: str) -> Callable[..., Done]:
        def call(*args: Any, **keys: Any) -> Done:
            mark = keys.get("restart", keys.get("is_partial"))
            self.calls.append((self.name, method, keys.get("step", keys.get("version")), mark))
            if method == "save_checkpoint":
                Path(args[0]).mkdir(parents=True)
                (Path(args[0]) / "state").write_text("saved")
            reply: Any = {"train/loss": 1.0} if method == "run_training" else {}
            return Done([] if method == "evaluate" else reply)

        return call


def run(tmp_path: Path, *overrides: str, callbacks: Sequence[Any] = ()) -> list[Any]:
    keys = (f"runner.logger.log_path={tmp_path}", "runner.logger.logger_backends=[]", *overrides)
    cfg = validate_cfg(load_recipe("gym_cartpole_async_ppo_mlp", list(keys)))
    calls = []
    groups = {name: Group(name, calls) for name in ("actor", "rollout", "env")}
    runner = AsyncEmbodiedRunner(cfg, **groups)
    runner.add_callbacks(callbacks)
    runner.run()
    return calls


@pytest.mark.parametrize("threshold", [0, 1, 3])
def test_a_rollout_begins_as_soon_as_the_weights_it_needs_are_published(tmp_path: Path, threshold: int) -> None:
    calls = run(
        tmp_path, f"algorithm.staleness_threshold={threshold}", "runner.max_epochs=8", "runner.val_check_interval=-1"
    )
    published, trained, begun = -1, 0, {}
    for _, method, number, _ in calls:
        if method == "sync_model_to_rollout":
            published = number
        elif method == "generate":
            begun[number] = (published, trained)
        elif method == "run_training":
            trained = number
    assert begun == {step: (max(step - 1 - threshold, 0),) * 2 for step in range(1, 9)}


def test_receivers_that_have_all_weights_get_what_is_trained_alone(tmp_path: Path) -> None:
    keys = ("algorithm.staleness_threshold=2", "runner.max_epochs=5", "runner.val_check_interval=3")
    sent = [call[2:] for call in run(tmp_path, *keys) if call[1] == "sync_model_to_rollout"]
    assert sent == [(version, version > 0) for version in range(6)]


def test_nothing_is_made_ahead_of_an_evaluation_or_a_checkpoint(tmp_path: Path) -> None:
    keys = ("algorithm.staleness_threshold=2", "runner.max_epochs=8", "runner.val_check_interval=3")
    calls = run(tmp_path, *keys, "runner.save_interval=4")
    begun = 0
    pauses = []
    for group, method, number, _ in calls:
        if method == "generate":
            begun = number
        elif group == "actor" and method == "save_checkpoint" or group == "env" and method == "evaluate":
            pauses.append((method, begun))
        elif group == "rollout" and method == "sync_model_from_actor":
            assert number == begun  # what is loaded then is what all before was trained into
    assert pauses == [
        ("evaluate", 0),
        ("evaluate", 3),
        ("save_checkpoint", 4),
        ("evaluate", 6),
        ("evaluate", 8),
        ("save_checkpoint", 8),
    ]
    # A checkpoint ends no episode.
    assert [step for _, method, step, restart in calls if method == "interact" and restart] == [1]


def test_no_call_is_left_behind_the_rollouts_but_for_their_times(tmp_path: Path) -> None:
    calls = run(tmp_path, "algorithm.staleness_threshold=2", "runner.max_epochs=5", "runner.val_check_interval=-1")
    of_env = [(method, step) for group, method, step, _ in calls if group == "env" and method != "init_worker"]
    calls = [call for step in range(1, 6) for call in (("interact", step), ("pop_execution_times", None))]
    assert of_env == [*calls, ("save_episodes", 5)]


def test_a_run_that_a_callback_ends_trains_on_the_rollouts_that_were_begun(tmp_path: Path) -> None:
    keys = ("algorithm.staleness_threshold=2", "runner.max_epochs=20", "runner.val_check_interval=-1")
    calls = run(tmp_path, *keys, callbacks=[lambda step, _: step < 4])
    begun = [number for _, method, number, _ in calls if method == "generate"]
    trained = [number for _, method, number, _ in calls if method == "run_training"]
    assert begun == trained
    assert 4 <= trained[-1] <= 7
    assert calls[-1][1] in {"save_checkpoint", "save_episodes"}, "the last step has a checkpoint"
