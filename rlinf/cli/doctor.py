"""``rlinf doctor``: what this machine has and lacks, with the one command that mends each finding.

Nothing heavy is imported here: torch is imported in another process, so that a broken installation is a finding too.
"""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlinf.utils.optional import install_command
from rlinf.utils.ray_address import named_ray

GIB = 1 << 30
# Less shared memory than this and large messages between workers fall back to files.
MIN_SHM_BYTES = 1 * GIB
# A run writes checkpoints and videos; below this it soon fails.
MIN_DISK_BYTES = 5 * GIB
_TIMEOUT_SECONDS = 120
MIN_PYTHON = (3, 10)
RAY_PORT = 6379
"""Where ``ray_utils/start_ray.sh`` starts the head of a cluster, by default."""

REQUIRED_PACKAGES: dict[str, str] = {
    "ray": "2.50",
    "torch": "2.6",
    "hydra-core": "1.3.2",
    "omegaconf": "2.3",
    "pydantic": "2.9",
    "numpy": "1.26",
    "gymnasium": "1.1",
    "pyzmq": "26",
    "xxhash": "3.4",
    "cloudpickle": "3",
    "psutil": "5.9",
    "safetensors": "0.4.3",
    "tensorboard": "2.16",
    "rich": "13.7",
    "jsonschema": "4.20",
}
"""Distributions that every run needs, with the oldest version that works."""

OPTIONAL_PACKAGES: dict[str, str] = {
    "metaworld": "env_type=metaworld",
    "mani-skill": "env_type=maniskill",
    "sapien": "env_type=maniskill",
    "hf-libero": "env_type=libero",
    "robosuite": "env_type=robosuite and env_type=libero",
    "bddl": "env_type=libero",
    "mujoco": "env_type=frankasim, and Gymnasium's MuJoCo environments",
    "gymnasium-robotics": "import_module=gymnasium_robotics",
    "imageio": "videos",
    "imageio-ffmpeg": "videos",
    "pygame": "videos of Gymnasium's classic environments",
    "transformers": "language models",
    "datasets": "language models",
    "tokenizers": "language models",
    "math-verify": "reward_type=math",
    "peft": "actor.model.is_lora",
    "aiohttp": "rlinf serve and rollout_backend=server",
    "uvloop": "a faster event loop of workers",
    "openai": "programs that examples/agents trains",
    "anthropic": "programs on Anthropic's package",
    "mcp": "tool_type=mcp",
    "bm25s": "examples/agents/search/serve_corpus.py",
    "megatron-core": "actor.training_backend=megatron",
    "vllm": "rollout_backend=vllm",
    "sglang": "rollout_backend=sglang",
    "h5py": "data.format=minari and d4rl",
    "pyarrow": "data sets in the LeRobot format",
    "pillow": "images of data sets and of vision-language-action policies",
    "plotly": "report.html",
    "opencv-python-headless": "cameras of robots",
    "pyrealsense2": "RealSense cameras of robots",
    "pynput": "intervener_type=keyboard",
    "pyspacemouse": "intervener_type=spacemouse",
    "dynamixel-sdk": "intervener_type=gello",
    "wandb": "W&B",
    "swanlab": "SwanLab",
    "onnx": "rlinf export to .onnx",
    "onnxscript": "rlinf export to .onnx",
    "hydra-optuna-sweeper": "rlinf train -m hydra/sweeper=optuna",
    "py-spy": "rlinf status --stacks",
}
"""Distributions that some recipes need, and what for."""

_TORCH_PROBE = (
    "import json, torch; print(json.dumps({'cuda': torch.version.cuda, "
    "'devices': torch.cuda.device_count(), 'gloo': torch.distributed.is_available()}))"
)
# Building a scene makes materials, for which SAPIEN opens the Vulkan driver whether it is to draw or not.
_VULKAN_PROBE = "import sapien.render; sapien.render.RenderMaterial()"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        level: ``ok``; ``note`` for what is merely absent; ``warn`` for what will hurt; ``fail`` for what prevents runs.
        text: What was found.
        remedy: The one command that mends it; empty when nothing needs to be.
    """

    name: str
    level: Literal["ok", "note", "warn", "fail"]
    text: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf doctor``: none."""
    del parser


def run(args: argparse.Namespace) -> int:
    """Print what was found.

    Returns:
        1 when something required is missing, else 0.
    """
    del args
    failed = 0
    for check in CHECKS:
        for finding in check():
            failed += finding.level == "fail"
            print(f"[{finding.level:^4}] {finding.name:<14} {finding.text}")
            if finding.remedy:
                print(f"{'':>22}-> {finding.remedy}")
    print(f"\n{failed} problem(s) prevent runs." if failed else "\nThis machine can run recipes.")
    return 1 if failed else 0


def check_interpreter() -> Iterable[Finding]:
    """Python's version and place."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < MIN_PYTHON:
        needed = ".".join(map(str, MIN_PYTHON))
        yield Finding(
            "python", "fail", f"{version} ({sys.executable}); needed: >= {needed}", f"uv venv --python {needed} .venv"
        )
        return
    yield Finding("python", "ok", f"{version} ({sys.executable})")


def check_packages() -> Iterable[Finding]:
    """Required and optional distributions."""
    for name, minimum in REQUIRED_PACKAGES.items():
        found = installed_version(name)
        if found is None:
            yield Finding(name, "fail", f"not installed; needed: >= {minimum}", f"pip install '{name}>={minimum}'")
        elif _numbers(found) < _numbers(minimum):
            yield Finding(name, "fail", f"{found}; needed: >= {minimum}", f"pip install -U '{name}>={minimum}'")
        else:
            yield Finding(name, "ok", found)
    for name, purpose in OPTIONAL_PACKAGES.items():
        found = installed_version(name)
        if found is None:
            remedy = install_command(name.replace("-", "_"))
            yield Finding(name, "note", f"not installed; only needed for {purpose}", remedy)
        else:
            yield Finding(name, "ok", found)


def check_pins() -> Iterable[Finding]:
    """Whether what is pinned, because its releases change results or do not work, is there in that version."""
    try:
        requirements = importlib.metadata.requires("rlinf") or []
    except importlib.metadata.PackageNotFoundError:
        remedy = "pip install -e ."
        yield Finding("rlinf", "note", "not installed; it runs from this folder, and pins are not known", remedy)
        return
    # Several extras may name the same pin.
    for name, relation, version, is_optional in dict.fromkeys(pin for line in requirements for pin in _pins(line)):
        found = installed_version(name)
        if found is None:
            continue
        if relation == "==" and _numbers(found) != _numbers(version):
            text = f"{found}; pinned: {version}, the version that results in the documents are of"
            yield Finding(name, "warn", text, f"pip install '{name}=={version}'")
        elif relation == "<" and _numbers(found) >= _numbers(version):
            level: Literal["warn", "fail"] = "warn" if is_optional else "fail"
            yield Finding(name, level, f"{found}; needed: < {version}", f"pip install '{name}<{version}'")


def check_torch() -> Iterable[Finding]:
    """Whether torch can be imported, and the devices it sees."""
    if installed_version("torch") is None:
        return
    answer = _output([sys.executable, "-c", _TORCH_PROBE])
    if answer is None:
        yield Finding(
            "torch import", "fail", "torch is installed but cannot be imported", "pip install --force-reinstall torch"
        )
        return
    found = json.loads(answer.strip().splitlines()[-1])
    build = f"built for CUDA {found['cuda']}" if found["cuda"] else "built for CPU"
    text = f"{build}, sees {found['devices']} CUDA device(s)"
    num_gpus = len(_gpus())
    if num_gpus and not found["cuda"]:
        remedy = "bash requirements/install.sh embodied"
        yield Finding("torch import", "warn", f"{text}; this machine has {num_gpus} GPU(s)", remedy)
    elif num_gpus and not found["devices"]:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        cause = "the driver is older than that CUDA" if hidden is None else f"CUDA_VISIBLE_DEVICES is '{hidden}'"
        remedy = (
            "apt-get install --upgrade nvidia-driver   # and restart"
            if hidden is None
            else "unset CUDA_VISIBLE_DEVICES"
        )
        yield Finding("torch import", "warn", f"{text}, of {num_gpus} that the driver knows: {cause}", remedy)
    else:
        yield Finding("torch import", "ok", text)
    if not found["gloo"]:
        yield Finding("torch", "fail", "built without torch.distributed", "pip install --force-reinstall torch")


def check_gpus() -> Iterable[Finding]:
    """NVIDIA GPUs as the driver reports them."""
    gpus = _gpus()
    if gpus:
        models = sorted({", ".join(gpu[:-1]) for gpu in gpus})
        yield Finding("gpu", "ok", f"{len(gpus)}: {'; '.join(models)}")
        yield Finding("driver", "ok", gpus[0][-1])
    elif shutil.which("nvidia-smi") is not None:
        text = "nvidia-smi is installed and finds no GPU, or no driver; recipes run on the CPU"
        yield Finding("gpu", "warn", text, "nvidia-smi   # says what it misses")
    else:
        yield Finding("gpu", "note", "no NVIDIA GPU found; recipes run on the CPU")


def check_memory() -> Iterable[Finding]:
    """Processors, main memory and shared memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("cpu", "ok", f"{os.cpu_count()} cores, {total / GIB:.1f} GiB memory")
    shm = Path("/dev/shm")
    if not shm.is_dir():
        yield Finding("shared memory", "warn", "/dev/shm does not exist; messages go through files")
        return
    usage = shutil.disk_usage(shm)
    text = f"/dev/shm has {usage.free / GIB:.1f} of {usage.total / GIB:.1f} GiB free"
    if usage.free < MIN_SHM_BYTES:
        remedy = "mount -o remount,size=8G /dev/shm   # in a container: docker run --shm-size=8g"
        yield Finding("shared memory", "warn", text, remedy)
    else:
        yield Finding("shared memory", "ok", text)


def check_disk() -> Iterable[Finding]:
    """Space where results go by default."""
    usage = shutil.disk_usage(Path.cwd())
    text = f"{usage.free / GIB:.1f} GiB free in {Path.cwd()}"
    if usage.free < MIN_DISK_BYTES:
        yield Finding("disk", "warn", text, "add runner.logger.log_path=<folder on a larger disk> to the command")
    else:
        yield Finding("disk", "ok", text)


def check_ports() -> Iterable[Finding]:
    """Whether this machine can be the head of a cluster at the port that others look for it at."""
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            mine.bind(("", RAY_PORT))
        except OSError:
            text = f"{RAY_PORT} is taken, by a Ray or another program; only needed for the head of several machines"
            yield Finding("port", "note", text, f"bash ray_utils/start_ray.sh head --rank 0 --port {RAY_PORT + 1}")
            return
    yield Finding("port", "ok", f"{RAY_PORT} is free, for the head of several machines")


def check_ray() -> Iterable[Finding]:
    """Whether a Ray cluster runs that a run would join."""
    record = Path("/tmp/ray/ray_current_cluster")
    address = named_ray()
    if not address and record.is_file() and os.access(record, os.R_OK):
        address = record.read_text(encoding="utf-8").strip()
    if not address:
        yield Finding("ray cluster", "ok", "no cluster runs here; a run starts its own")
    elif _answers(address):
        yield Finding("ray cluster", "ok", f"a cluster answers at {address}")
    elif named_ray():
        yield Finding("ray cluster", "warn", f"RAY_ADDRESS={address} does not answer", "unset RAY_ADDRESS")
    else:
        yield Finding("ray cluster", "ok", "no cluster runs here (one did before); a run starts its own")


def check_rendering() -> Iterable[Finding]:
    """Whether MuJoCo can draw images; states need none of this."""
    if installed_version("mujoco") is None:
        return
    libraries = {"egl": "EGL", "osmesa": "OSMesa", "glfw": "GL"}
    found = [backend for backend, library in libraries.items() if ctypes.util.find_library(library)]
    chosen = os.environ.get("MUJOCO_GL", "")
    if chosen and chosen in libraries and chosen not in found:
        text = f"MUJOCO_GL={chosen}, but its library is not installed; videos would fail"
    elif chosen or "egl" in found or "osmesa" in found:
        yield Finding("rendering", "ok", f"MUJOCO_GL={chosen or 'unset'}; available: {', '.join(found) or 'none'}")
        return
    else:
        text = "no off-screen OpenGL; videos of MuJoCo environments would fail"
    yield Finding("rendering", "warn", text, "apt-get install -y libosmesa6 && export MUJOCO_GL=osmesa")


def check_vulkan() -> Iterable[Finding]:
    """Whether ManiSkill finds the Vulkan driver that it needs, for states too."""
    if installed_version("sapien") is None:
        return
    if _output([sys.executable, "-c", _VULKAN_PROBE]) is None:
        text = "SAPIEN finds no Vulkan driver that it can use; env_type=maniskill would fail"
        yield Finding("vulkan", "warn", text, "bash requirements/install.sh embodied --env maniskill   # as root")
    else:
        yield Finding("vulkan", "ok", "SAPIEN can use this machine's driver")


CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    check_interpreter,
    check_packages,
    check_pins,
    check_torch,
    check_gpus,
    check_memory,
    check_disk,
    check_ports,
    check_ray,
    check_rendering,
    check_vulkan,
)


def installed_version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pins(requirement: str) -> list[tuple[str, str, str, bool]]:
    """Return a requirement's exact and upper bounds: (distribution, ``==`` or ``<``, version, is of an extra)."""
    versions, _, marker = requirement.partition(";")
    named = re.match(r"[\w.-]+", versions)
    bounds = re.findall(r"(?<![<>=!~])(==|<)(?!=)\s*([\w.+]+)", versions)
    return [(named.group(), relation, version, "extra" in marker) for relation, version in bounds] if named else []


def _gpus() -> list[list[str]]:
    """Return name, memory and driver of each GPU as the driver reports them."""
    listing = _output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
    return [[part.strip() for part in line.split(",")] for line in (listing or "").splitlines() if line.strip()]


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts[:3])


def _output(command: list[str]) -> str | None:
    """Return a command's standard output, or None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _answers(address: str) -> bool:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return False
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            return True
    except OSError:
        return False
