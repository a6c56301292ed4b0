"""What typically goes wrong on a machine ends with exit code 1 and a message that a newcomer can act on.

The conditions are real: a disk that is full, a port that is taken, an interpreter that lacks a package.
"""

import os
import re
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.conftest import REPO, TINY

pytestmark = pytest.mark.timeout(300)
CARTPOLE = "gym_cartpole_ppo_mlp"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")


def is_told(run: Any, *expected: str) -> None:
    """The run ends with exit code 1 and a message that says all of it before any traceback; nothing is left running."""
    assert run.wait() == 1, run.output[-4000:]
    *_, error = re.split(r"^Error: ", run.output, flags=re.MULTILINE)
    message = error.partition("\n--- traceback of ")[0]
    for text in expected:
        assert text in message, run.output[-4000:]
    assert "Traceback" not in message
    assert not run.survivors()


def interpreter_without(folder: Path, package: str) -> Path:
    """Return a Python of this version with all that is installed here but one package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for installed in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if installed.name != package and not installed.name.startswith(("_virtualenv", f"{package}-")):
            (folder / "lib" / version / "site-packages" / installed.name).symlink_to(installed)
    return folder / "bin" / "python"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Return a function that mounts a disk of so many bytes."""
    mounted = []

    def mount(size_bytes: int) -> Path:
        folder = tmp_path / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "rlinf-test", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this container may not mount: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def other_home(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user who has not logged in anywhere, with a W&B that must not be reached."""
    (tmp_path / "packages" / "wandb").mkdir(parents=True)
    (tmp_path / "packages" / "wandb" / "__init__.py").write_text("def init(**_): raise SystemExit('W&B was started')\n")
    hidden = dict.fromkeys((name for name in os.environ if name.startswith("WANDB_")), "")
    return {**hidden, "HOME": str(tmp_path), "NETRC": "", "PYTHONPATH": f"{tmp_path / 'packages'}:{REPO}"}


def test_ray_that_is_not_installed(tmp_path: Path) -> None:
    python = interpreter_without(tmp_path / "venv", "ray")
    done = subprocess.run(
        [str(python), "examples/embodiment/train_embodied_agent.py", "--config-name", CARTPOLE],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(f"Error: Every run needs the package 'ray', which is not installed for {python}.")
    assert "bash requirements/install.sh embodied" in done.stderr


def test_ray_that_does_not_answer(start_run: Callable[..., Any], tmp_path: Path) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    run = start_run(CARTPOLE, f"runner.logger.log_path={tmp_path}", env={"RAY_ADDRESS": address})
    is_told(run, f"No Ray answers at {address} (RAY_ADDRESS)", "ray_utils/start_ray.sh", "unset RAY_ADDRESS")


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("of-this-test")
    with closing(socket.socket()) as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        done = subprocess.run(
            ["bash", "ray_utils/start_ray.sh", "head", "--rank", "0", "--port", str(port)],
            cwd=REPO,
            env={**os.environ, "HOME": str(tmp_path), "RLINF_VENV": sys.prefix},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1, done.stdout
    for text in (f"Port {port} is taken on this machine", "`ray stop`", "--port N"):
        assert text in done.stderr
    assert "Traceback" not in done.stderr


@needs_root
def test_a_disk_that_is_full_from_the_start(start_run: Callable[..., Any], small_disk: Callable[..., Path]) -> None:
    run = start_run(CARTPOLE, f"runner.logger.log_path={small_disk(1 << 20)}/results")
    is_told(run, "runner.logger.log_path", "is full", "Free some space")


@needs_root
def test_a_disk_that_fills_up_during_the_run(
    start_run: Callable[..., Any], one_node: str, small_disk: Callable[..., Path]
) -> None:
    large = "actor.model.hidden_dims=[1536,1536]"
    log_path = f"runner.logger.log_path={small_disk(20 << 20)}"
    run = start_run(CARTPOLE, *TINY, large, log_path, env={"RAY_ADDRESS": one_node})
    is_told(run, os.strerror(28), "Free some space on that disk, or set runner.logger.log_path")


def test_an_interpreter_that_cannot_run_workers(start_run: Callable[..., Any], tmp_path: Path) -> None:
    python = interpreter_without(tmp_path / "venv", "ray")
    entry = f"{{node_ranks: 0, python_interpreter_path: {python}}}"
    groups = f"cluster.node_groups=[{{label: robots, node_ranks: 0, env_configs: [{entry}]}}]"
    run = start_run(CARTPOLE, groups, f"runner.logger.log_path={tmp_path}")
    path = "cluster.node_groups[0].env_configs[0].python_interpreter_path"
    is_told(run, f"{path}: '{python}' on node 0", "No module named 'ray'", "Install RLinf there")


@pytest.mark.maniskill
def test_a_vulkan_driver_that_is_missing(start_run: Callable[..., Any], tmp_path: Path) -> None:
    hidden = {"VK_ICD_FILENAMES": "/nowhere/icd.json", "VK_DRIVER_FILES": "/nowhere/icd.json"}
    keys = (
        "runner.val_check_interval=-1",
        "~runner.stop_at",
        "env.train.num_env_processes=0",
        f"runner.logger.log_path={tmp_path}",
    )
    run = start_run("maniskill_pushcube_ppo_mlp", *keys, env=hidden)
    is_told(run, "SAPIEN cannot use this machine's Vulkan driver", "requirements/install.sh embodied --env maniskill")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
def test_a_recipe_for_gpus_where_there_are_none(
    start_run: Callable[..., Any], one_node: None, questions: Path, tmp_path: Path
) -> None:
    run = start_run(
        "qwen2_5_1_5b_grpo_math",
        f"actor.model.model_path={questions / 'model'}",
        f"data.train_data_paths=[{questions / 'train.jsonl'}]",
        f"data.val_data_paths=[{questions / 'val.jsonl'}]",
        "data.prompt_key=question",
        "data.answer_key=answer",
        "rollout.rollout_backend=hf",
        "~rollout.gpu_memory_utilization",
        f"runner.logger.log_path={tmp_path}",
        entry=REPO / "examples/reasoning/main_grpo.py",
        env={"RAY_ADDRESS": one_node},
    )
    is_told(run, "accelerator")


def test_a_model_that_is_not_there(start_run: Callable[..., Any], tmp_path: Path) -> None:
    keys = (f"actor.model.model_path={tmp_path}/model", f"runner.logger.log_path={tmp_path}")
    run = start_run("tiny_math_grpo", *keys, entry=REPO / "examples/reasoning/main_grpo.py")
    is_told(run, f"actor.model.model_path: there is no folder '{tmp_path}/model'", "hf download", "give that folder")


def test_weights_that_are_not_there(start_run: Callable[..., Any], tmp_path: Path) -> None:
    run = start_run(CARTPOLE, f"runner.ckpt_path={tmp_path}/x.pt", f"runner.logger.log_path={tmp_path}")
    is_told(run, f"runner.ckpt_path: '{tmp_path}/x.pt' does not exist", "remove the key")


def test_a_checkpoint_of_another_recipe(start_run: Callable[..., Any], one_node: None, tmp_path: Path) -> None:
    torch.save({"actor.0.weight": torch.zeros(3, 3)}, tmp_path / "other.pt")
    keys = (*TINY, f"runner.ckpt_path={tmp_path}/other.pt", f"runner.logger.log_path={tmp_path}")
    run = start_run(CARTPOLE, *keys, env={"RAY_ADDRESS": one_node})
    is_told(run, f"The weights in '{tmp_path}/other.pt' do not fit actor.model", "Give a checkpoint of this recipe")


def test_two_nodes_with_one_rank(start_run: Callable[..., Any], tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes()
    os.environ["RLINF_NODE_RANK"] = "0"
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        run = start_run(
            CARTPOLE, "cluster.num_nodes=2", f"runner.logger.log_path={tmp_path}", env={"RAY_ADDRESS": nodes.address}
        )
        is_told(run, "RLINF_NODE_RANK must be 0-1, each once; found", "start_ray.sh --rank N")
    finally:
        del os.environ["RLINF_NODE_RANK"]
        nodes.shutdown()


def test_wandb_that_nobody_is_logged_in_to(
    start_run: Callable[..., Any], other_home: dict[str, str], tmp_path: Path
) -> None:
    keys = ("runner.logger.logger_backends=[wandb]", f"runner.logger.log_path={tmp_path / 'results'}")
    is_told(start_run(CARTPOLE, *keys, env=other_home), "api.wandb.ai", "wandb login", "WANDB_MODE=offline")
    assert not (tmp_path / "results").exists()
