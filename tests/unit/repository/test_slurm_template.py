"""The SLURM template: what it starts where, in which order, and what it leaves, with stand-ins for SLURM and Ray."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from repository_tree import ROOT

TEMPLATE = ROOT / "ray_utils" / "slurm" / "train.sbatch"
SCRIPT = "examples/embodiment/train_embodied_agent.py"

PROGRAMS = {
    "bin/scontrol": 'test "$*" = "show hostnames node[4-5]" && printf "node4\\nnode5\\n"',
    # One task on each node, each with its number; they end with the step, as under SLURM.
    "bin/srun": """while [[ $1 == --* ]]; do shift; done
for ((i = 0; i < SLURM_NNODES; i++)); do SLURM_PROCID=$i "$@" & done
trap 'kill $(jobs -p); exit 143' TERM
wait""",
    "bin/getent": 'test "$*" = "ahostsv4 node4" && echo "10.1.2.3 STREAM node4"',
    "venv/bin/ray": 'echo "ray $* rank=$RLINF_NODE_RANK" >>"$CALLS"',
    "venv/bin/python": """shift_path() { echo "${1##*/}" "${@:2}"; }
echo "python $(shift_path "$@") address=${RAY_ADDRESS:-}" >>"$CALLS"
case "$*" in
  *" joined "*) echo 10.1.2.3:6379 ;;
  *train_embodied_agent*) exec "$REAL_PYTHON" "$DRIVER_CODE" ;;
esac""",
}


class Job:
    """A job of two nodes whose programs only note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.calls_file, self.driver = folder / "calls", folder / "driver.py"
        self.driver.write_text("", encoding="utf-8")
        self.repo = folder / "repo"
        self.repo.mkdir()
        for name in ("ray_utils", "examples"):
            (self.repo / name).symlink_to(ROOT / name)
        for name, text in PROGRAMS.items():
            program = folder / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
            program.chmod(0o755)
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_NODELIST": "node[4-5]",
            "SLURM_NNODES": "2",
            "SLURM_SUBMIT_DIR": str(self.repo),
            "RLINF_VENV": str(folder / "venv"),
            "CALLS": str(self.calls_file),
            "REAL_PYTHON": sys.executable,
            "DRIVER_CODE": str(self.driver),
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        # SLURM runs a copy of the script.
        copy = self.repo.parent / "slurm_script"
        copy.write_bytes(TEMPLATE.read_bytes())
        return subprocess.Popen(
            ["bash", str(copy), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def calls(self) -> list[str]:
        return self.calls_file.read_text(encoding="utf-8").splitlines() if self.calls_file.exists() else []


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ray_starts_on_every_node_and_the_recipe_on_the_first(job: Job) -> None:
    code, errors = job.run(SCRIPT, "--config-name", "mine", "actor.seed=3")
    assert code == 0, errors
    calls = job.calls()
    driver = "python train_embodied_agent.py --config-name mine actor.seed=3 cluster.num_nodes=2 address=10.1.2.3:6379"
    assert calls.count(driver) == 1
    before = calls[: calls.index(driver)]
    # Tasks start at the same time as the checks: they may come in any order, but the driver comes after the checks.
    assert [call for call in before if " nodes 2 " in call]
    assert [call for call in before if " reach 10.1.2.3:6379 --timeout 600 address=10.1.2.3:6379" in call]


def test_the_first_node_is_the_head_and_the_others_join_it(job: Job) -> None:
    # The driver ends when both nodes have started.
    job.driver.write_text(
        f"import time\nwhile open({str(job.calls_file)!r}).read().count('ray start') < 2:\n    time.sleep(0.05)\n",
        encoding="utf-8",
    )
    code, errors = job.run(SCRIPT, "--config-name", "mine")
    assert code == 0, errors
    started = sorted(call for call in job.calls() if call.startswith("ray start"))
    assert started == [
        "ray start --disable-usage-stats --address 10.1.2.3:6379 rank=1",
        "ray start --disable-usage-stats --head --port 6379 rank=0",
    ]


def test_the_token_is_the_jobs_own_and_private_and_goes_with_it(job: Job) -> None:
    note = job.repo.parent / "seen"
    job.driver.write_text(
        "import os, pathlib\n"
        "path = pathlib.Path(os.environ['RAY_AUTH_TOKEN_PATH'])\n"
        f"seen = [os.environ['RAY_AUTH_MODE'], oct(path.stat().st_mode & 0o777), len(path.read_text())]\n"
        f"pathlib.Path({str(note)!r}).write_text(repr(seen))\n",
        encoding="utf-8",
    )
    code, errors = job.run(SCRIPT, "--config-name", "mine")
    assert code == 0, errors
    assert note.read_text(encoding="utf-8") == repr(["token", "0o600", 64])
    assert not (job.repo / "results" / "slurm-77").exists()


@pytest.mark.parametrize("code", [1, 3])
def test_the_job_ends_as_the_run_does(job: Job, code: int) -> None:
    job.driver.write_text(f"raise SystemExit({code})", encoding="utf-8")
    assert job.run(SCRIPT, "--config-name", "mine")[0] == code


def test_when_time_is_over_the_run_is_interrupted_and_may_finish(job: Job) -> None:
    job.driver.write_text(
        "import time\nprint('up', file=open('up', 'w'))\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    time.sleep(0.5)\n    open('saved', 'w').close()\n",
        encoding="utf-8",
    )
    process = job.start(SCRIPT, "--config-name", "mine")
    wait_for((job.repo / "up").exists)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert (job.repo / "saved").exists()


@pytest.mark.parametrize(
    ("arguments", "variables", "told"),
    [
        ((), {}, "name the script to run"),
        ((SCRIPT,), {"SLURM_JOB_ID": ""}, f"submit it: sbatch ray_utils/slurm/train.sbatch {SCRIPT}"),
        (("examples/none.py",), {}, "no script examples/none.py in"),
        ((SCRIPT,), {"RLINF_REPO": "/nowhere"}, "/nowhere is not the repository"),
        ((SCRIPT,), {"RLINF_VENV": "/nowhere"}, "no environment at /nowhere"),
        ((SCRIPT,), {"SLURM_JOB_NODELIST": "node9"}, "name the interface: RLINF_COMM_NET_DEVICES"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    job: Job, arguments: tuple[str, ...], variables: dict[str, str], told: str
) -> None:
    job.environment |= variables
    code, errors = job.run(*arguments)
    assert code == 1
    assert told in errors
    assert [call for call in job.calls() if "ray_tools.py interface" not in call] == []


def test_the_template_asks_slurm_for_one_task_a_node_and_a_warning() -> None:
    text = TEMPLATE.read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, flags=re.MULTILINE))
    assert {"nodes", "ntasks-per-node", "exclusive", "signal"} <= set(options)
    assert options["ntasks-per-node"] == "1"
    assert options["signal"].startswith("B:TERM@")
    # SLURM reads no option after the first command.
    assert text.rindex("#SBATCH") < text.index("set -euo")
