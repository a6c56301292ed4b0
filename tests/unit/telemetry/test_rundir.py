import errno
import json
import logging
import os
import shutil
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from rlinf.config.schema.runner import RunnerConfig
from rlinf.errors import ConfigError
from rlinf.telemetry.rundir import claim_run_dir, record_launch


def start(root: str | Path, name: str = "exp", *, resume: bool = False, overwrite: bool = False, **kwargs: Any) -> Path:
    with claim_run_dir(root, name, resume=resume, overwrite=overwrite) as folder:
        record_launch(folder, name, **kwargs)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "run.lock")


def make_step(folder: Path, step: int = 1) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "time_seconds": 1.0}) + "\n")


def test_a_new_folder_gets_recipe_and_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = start("results", "a/b", config=RunnerConfig(max_steps=7), seed=3, command=["train.py", "--x"])
    assert folder == tmp_path / "results" / "a" / "b"
    assert yaml.safe_load((folder / "config.yaml").read_text())["max_steps"] == 7
    launch = json.loads((folder / "run.json").read_text())["launches"][0]
    assert launch["seed"] == 3
    assert launch["command"] == ["train.py", "--x"]
    assert launch["versions"]["numpy"]
    assert launch["resumed"] is False


def test_recipes_with_enumerations_paths_and_references_are_written_as_they_are(tmp_path: Path) -> None:
    class Kind(Enum):
        A = "a"

    @dataclass
    class Recipe:
        kind: Kind = Kind.A
        path: Path = Path("x/y")
        sizes: tuple[int, ...] = (1, 2)
        nested: dict[str, object] = field(default_factory=lambda: {"text": "no: yes", "none": None})

    folder = start(tmp_path, config=Recipe())
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {
        "kind": "a",
        "path": "x/y",
        "sizes": [1, 2],
        "nested": {"text": "no: yes", "none": None},
    }


@pytest.mark.parametrize("sign", ["metrics.jsonl", "checkpoints/x"])
def test_a_used_folder_is_refused_with_all_three_remedies(tmp_path: Path, sign: str) -> None:
    path = tmp_path / "exp" / sign
    path.parent.mkdir(parents=True)
    path.write_text("old")
    with pytest.raises(ConfigError) as error:
        start(tmp_path)
    for part in (
        str(tmp_path / "exp"),
        "resume_dir=auto",
        "runner.overwrite=true",
        "experiment_name",
        sign.split("/")[0],
    ):
        assert part in str(error.value)
    assert path.read_text() == "old"


def test_a_folder_without_a_run_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "exp" / "worker_logs").mkdir(parents=True)
    (tmp_path / "exp" / "checkpoints").mkdir()
    (tmp_path / "exp" / "notes.txt").write_text("mine")
    assert start(tmp_path).is_dir()
    assert (tmp_path / "exp" / "notes.txt").read_text() == "mine"


def test_a_launch_that_never_began_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    def launch() -> NoReturn:
        with claim_run_dir(tmp_path, "exp", resume=False, overwrite=False):
            raise RuntimeError("no demonstrations")

    with pytest.raises(RuntimeError):
        launch()
    assert names(tmp_path / "exp") == []
    start(tmp_path)


def test_a_run_that_failed_in_its_first_step_may_be_launched_again_by_the_same_command(tmp_path: Path) -> None:
    folder = start(tmp_path, config={"lr": 1})
    make_step(folder, step=0)
    (folder / "tensorboard").mkdir()
    start(tmp_path, config={"lr": 1})
    make_step(folder, step=1)
    with pytest.raises(ConfigError, match="already holds a run"):
        start(tmp_path, config={"lr": 1})


def test_resume_keeps_everything_and_records_each_launch(tmp_path: Path) -> None:
    folder = start(tmp_path, config={"lr": 1})
    make_step(folder)
    start(tmp_path, resume=True, config={"lr": 1})
    assert names(folder) == ["config.yaml", "metrics.jsonl", "run.json"]
    start(tmp_path, resume=True, config={"lr": 2})
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {"lr": 2}
    assert yaml.safe_load((folder / "config.1.yaml").read_text()) == {"lr": 1}
    launches = json.loads((folder / "run.json").read_text())["launches"]
    assert [launch["resumed"] for launch in launches] == [False, True, True]


def test_each_launch_has_its_own_seed_and_placement(tmp_path: Path) -> None:
    start(tmp_path, seed=1)
    folder = start(tmp_path, resume=True, seed=2, placement="node 0")
    record = json.loads((folder / "run.json").read_text())
    assert record["experiment_name"] == "exp"
    assert [launch.get("placement") for launch in record["launches"]] == [None, "node 0"]
    assert [launch["seed"] for launch in record["launches"]] == [1, 2]


def test_overwrite_deletes_the_run_and_nothing_else(tmp_path: Path) -> None:
    folder = start(tmp_path, config={"lr": 1})
    (folder / "checkpoints" / "global_step_1").mkdir(parents=True)
    for name in ("metrics.jsonl", "events.jsonl", "report.html"):
        (folder / name).write_text("old")
    (folder / "notes.txt").write_text("mine")
    start(tmp_path, overwrite=True, config={"lr": 2})
    assert names(folder) == ["config.yaml", "notes.txt", "run.json"]
    assert len(json.loads((folder / "run.json").read_text())["launches"]) == 1


def test_an_overwrite_that_is_killed_can_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = start(tmp_path)
    (folder / "checkpoints").mkdir()

    def killed(_path: object, **_keys: Any) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            start(tmp_path, overwrite=True)
    assert not (folder / "checkpoints").exists()
    start(tmp_path, overwrite=True)
    assert names(folder) == ["run.json"]


def test_what_workers_write_after_the_claim_survives_overwrite(tmp_path: Path) -> None:
    for _ in range(2):
        with claim_run_dir(tmp_path, "exp", resume=False, overwrite=True) as folder:
            assert not (folder / "worker_logs").exists()
            (folder / "worker_logs").mkdir()
            (folder / "worker_logs" / "EnvGroup_0.log").write_text("Ready")
            # As the runner does, once the workers are there.
            with claim_run_dir(tmp_path, "exp", resume=False, overwrite=True) as again:
                record_launch(again, "exp")
        assert names(folder) == ["run.json", "worker_logs"]


def test_a_former_run_that_cannot_be_deleted_is_moved_away_and_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = start(tmp_path)
    make_step(folder)
    monkeypatch.setattr(logging.getLogger("rlinf"), "propagate", True)

    def busy(path: Path, *args: Any, **keys: Any) -> NoReturn:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "unlink", busy)
        for _ in range(2):
            start(tmp_path, overwrite=True)
    assert "cannot be deleted" in caplog.text
    assert [name for name in names(folder) if not name.startswith(".trash")] == ["run.json"]
    start(tmp_path, overwrite=True)
    assert names(folder) == ["run.json"]


def test_a_former_run_that_cannot_be_moved_away_is_an_error_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_step(start(tmp_path))

    def busy(*names: Any) -> NoReturn:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "rename", busy)
    with pytest.raises(ConfigError, match=r"runner\.overwrite=true: .*metrics\.jsonl.*busy.*experiment_name"):
        start(tmp_path, overwrite=True)


def test_resume_and_overwrite_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"runner\.resume_dir.*runner\.overwrite"):
        start(tmp_path, resume=True, overwrite=True)


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/../../b", "/abs"])
def test_names_that_leave_the_log_path_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="experiment_name"):
        start(tmp_path, name, overwrite=True)
    assert list(tmp_path.iterdir()) == []


def test_keys_and_passwords_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "reward.url=http://a/?api_key=topsecret"])
    config = {"env_vars": [{"HF_TOKEN": "topsecret", "NCCL_DEBUG": "INFO"}], "url": "http://a/?api_key=topsecret"}
    folder = start(tmp_path, config=config, command=["train.py", "env_vars=[{HF_TOKEN: topsecret}]", "lr=1"])
    texts = [(folder / name).read_text() for name in ("config.yaml", "run.json")]
    assert "topsecret" not in "".join([*texts, (folder / "run.lock").read_text()])
    assert yaml.safe_load(texts[0])["env_vars"] == [{"HF_TOKEN": "<hidden>", "NCCL_DEBUG": "INFO"}]
    assert json.loads(texts[1])["launches"][0]["command"] == ["train.py", "env_vars=[{HF_TOKEN: <hidden>}]", "lr=1"]
