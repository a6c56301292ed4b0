"""The RUN steps of the images, in an empty system without Docker: what they install works there.

Debian stands in for Ubuntu. Packages come from wherever this machine has them from: its pip settings, the folders that
these name, and the authorities that it trusts go along.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository_tree import ROOT
from test_dockerfile import TARGETS, stages

CAN = os.geteuid() == 0 and all(map(shutil.which, ("debootstrap", "unshare", "chroot")))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not CAN, reason="needs root and debootstrap; run: apt-get install debootstrap"),
]
TRUSTED = Path("usr/local/share/ca-certificates")
CHECKS = {
    "base": "rlinf plan gym_cartpole_ppo_mlp",
    "embodied": "rlinf plan metaworld_reach_ppo_mlp && python -c 'import metaworld, gymnasium_robotics'",
    "maniskill": "python -c 'import mani_skill'",
    "reason-vllm": "python -c 'import vllm'",
    "reason-sglang": "python -c 'import sglang'",
    "docs": "bash docs/build.sh",
}


class EmptySystem:
    """A folder with a minimal Debian, in which commands run as if it were all there is.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)', Path("/etc/os-release").read_text(), flags=re.MULTILINE))
        subprocess.run(["debootstrap", "--variant=minbase", release["VERSION_CODENAME"], str(root)], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        shutil.copytree(Path("/") / TRUSTED, root / TRUSTED, dirs_exist_ok=True)
        pip = [sys.executable, "-m", "pip", "config", "list"]
        settings = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
        (root / "etc/pip.conf").write_text(
            "[global]\n"
            + "".join(f"{key} = {value}\n" for key, value in re.findall(r"^global\.(\S+)='(.*)'", settings, flags=re.M))
        )
        # An index in a folder refers to files beside it.
        indexes = [str(Path(folder).parent) for folder in re.findall(r"file://(/[^\s']+)", settings)]
        named = indexes + re.findall(r"(?<![\w/])(/[^\s']+)", settings)
        self.folders = sorted({folder for folder in named if Path(folder).is_dir()})
        self.variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        self.variables |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}

    def run(self, command: str, folder: str = "/") -> None:
        """Run a command as Docker's ``SHELL`` does; what is mounted for it is gone with it."""
        steps = ["set -e", f"mount -t proc proc {self.root}/proc", f"mount --rbind /dev {self.root}/dev"]
        for shared in self.folders:
            steps += [f"mkdir -p {self.root}{shared}", f"mount --bind {shared} {self.root}{shared}"]
        inside = shlex.join(["/bin/bash", "-o", "pipefail", "-c", f"cd {folder}; {command}"])
        steps.append(f"exec chroot {self.root} {inside}")
        shell = ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(steps)]
        done = subprocess.run(shell, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    def build(self, stage: str, arguments: dict[str, str]) -> None:
        """Do what a stage does, and what it stands on."""
        if stage not in stages():
            return
        parent, body = stages()[stage]
        self.build(parent, arguments)
        self.variables |= arguments
        folder = "/opt/rlinf" if stage != "system" else "/"
        for line in body.splitlines():
            word, _, rest = line.partition(" ")
            if word == "ENV":
                given = re.findall(r"(\w+)=(\S+)", rest)
                self.variables |= {name: value.replace("$PATH", self.variables["PATH"]) for name, value in given}
            elif word == "RUN":
                self.run(rest, folder)
            elif word == "COPY":
                self.copy_project(self.root / "opt/rlinf")

    def copy_project(self, target: Path) -> None:
        """Copy the files that Git tracks."""
        target.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(target)], input=archive, check=True)


@pytest.fixture
def empty_system() -> Iterator[EmptySystem]:
    """Not in pytest's own folder, which keeps what is gigabytes here."""
    folder = Path(tempfile.mkdtemp(prefix="rlinf_image"))
    yield EmptySystem(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_what_a_target_installs_works(empty_system: EmptySystem, target: str) -> None:
    empty_system.build(target, {"DEVICE": "cpu"})
    empty_system.run(CHECKS[target], "/opt/rlinf")
