"""Two hosts on this machine: network namespaces joined by cables, each with its own home, temporary folder and Ray."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psutil

REPO = Path(__file__).parents[2]
WORKERS = REPO / "tests/unit/scheduler"
PORT = 6399
# Both hosts have both; only "fast0" is named for the traffic of runs.
NETWORKS = {"slow0": "10.201.1", "fast0": "10.201.2"}


def run_ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Host:
    """One host: a network namespace and the variables of a user who is logged in there."""

    def __init__(self, root: Path, number: int, mark: str) -> None:
        self.number = number
        self.namespace = f"rl{mark[:6]}{number}"
        self.ip = f"{NETWORKS['fast0']}.{number + 1}"
        self.home = root / str(number)
        self.home.mkdir()
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RLINF_"))},
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "RAY_TMPDIR": str(self.home),
            "RLINF_TEST_MARK": mark,
            "RLINF_VENV": sys.prefix,
            "RLINF_COMM_NET_DEVICES": "eth77,fast0",
            "RLINF_CPU_SLOTS": "1",
            "RAY_raylet_start_wait_time_s": "200",
            "PYTHONPATH": f"{REPO}:{WORKERS}",
            "PYTHONUNBUFFERED": "1",
        }
        run_ip("netns", "add", self.namespace)
        run_ip("-n", self.namespace, "link", "set", "lo", "up")

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on this host."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *command],
            env={**self.environment, **environment},
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, timeout: int = 200, **environment: bool | str) -> tuple[Any, str]:
        """Run a command on this host; return its exit code and its output."""
        process = self.start(*command, **environment)
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output = f"{process.communicate()[0]}\n[killed after {timeout} s]"
        return process.returncode, output

    def script(self, name: str, *arguments: str, **environment: str) -> tuple[Any, str]:
        """Run a script of ``ray_utils``."""
        return self.run("bash", str(REPO / "ray_utils" / name), *arguments, **environment)

    def set_cable(self, state: str) -> None:
        """Plug the host's cables in ("up") or out ("down")."""
        for device in NETWORKS:
            run_ip("-n", self.namespace, "link", "set", device, state)


class Hosts:
    """Host 0 and host 1; a context manager that leaves nothing behind."""

    def __enter__(self) -> Hosts:
        self.mark = uuid.uuid4().hex
        # Unix sockets below it may have paths of about 100 characters only.
        self.root = Path(tempfile.mkdtemp(prefix="rl", dir="/tmp"))
        self.both = []
        try:
            for number in (0, 1):
                self.both.append(Host(self.root, number, self.mark))
            for device, subnet in NETWORKS.items():
                self._connect(device, subnet)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self, device: str, subnet: str) -> None:
        ends = [f"{device[:4]}{self.mark[:6]}{number}" for number in (0, 1)]
        run_ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host, end in zip(self.both, ends, strict=True):
            run_ip("link", "set", end, "netns", host.namespace, "name", device)
            run_ip("-n", host.namespace, "addr", "add", f"{subnet}.{host.number + 1}/24", "dev", device)
            run_ip("-n", host.namespace, "link", "set", device, "up")

    def __exit__(self, *exc: object) -> None:
        for _ in range(20):
            mine = [process for process in psutil.process_iter() if self._is_mine(process)]
            for process in mine:
                process.kill()
            if not mine:
                break
            time.sleep(0.2)
        for host in self.both:
            run_ip("netns", "del", host.namespace)
        shutil.rmtree(self.root, ignore_errors=True)

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            mine = process.environ().get("RLINF_TEST_MARK") == self.mark
            return mine and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False
