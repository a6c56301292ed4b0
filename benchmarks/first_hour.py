"""What the first minutes with RLinf cost: imports, size of the installation, and the time to the first training step.

Prints JSON, and with ``--save`` keeps it in ``benchmarks/results``:

    python benchmarks/first_hour.py --save
    python benchmarks/first_hour.py --parts imports --processes 20

Imports and ``rlinf plan`` are medians over fresh processes. The size is that of the packages which RLinf needs, from
what this environment has recorded of them, and what each extra adds; ``--install`` also installs RLinf into an empty
environment and measures its folder. The first step is that of a run as a user starts it, from the start of its process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parents[1]
RESULTS = REPO / "benchmarks" / "results" / "first_hour.json"
RECIPE = "gym_cartpole_ppo_mlp"
IMPORTS = (
    "import rlinf",
    "import rlinf.config",
    "from rlinf.config import load_recipe, validate_cfg",
    "from rlinf.scheduler import Cluster, Worker",
    "import torch",
)
"""What is imported, each in processes of its own; torch for comparison."""

MEGABYTE = 1e6
POLL_SECONDS = 0.02


# ----------------------------------------------------------------------------------------------------- imports


def measure_imports(processes: int) -> dict[str, float]:
    """Return the median seconds of each import, of ``rlinf plan`` and of Python doing nothing."""
    seconds = {statement: median(partial(_import, statement), processes) for statement in IMPORTS}
    plan = [str(Path(sys.executable).parent / "rlinf"), "plan", RECIPE]
    seconds[f"rlinf plan {RECIPE}"] = median(partial(_wall, plan), processes)
    seconds["python -c pass"] = median(partial(_wall, [sys.executable, "-c", "pass"]), processes)
    return seconds


def median(measure: Callable[[], float], times: int) -> float:
    """Return the median of some measurements, to the millisecond."""
    return round(statistics.median(measure() for _ in range(times)), 3)


def _import(statement: str) -> float:
    code = f"import time\nstart = time.perf_counter()\n{statement}\nprint(time.perf_counter() - start)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=REPO)
    return float(run.stdout)


def _wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=REPO)
    return time.perf_counter() - start


# ------------------------------------------------------------------------------------------------- installed size


def measure_size(top: int = 8) -> dict[str, Any]:
    """Return packages and MB of RLinf without extras, its largest packages, and what each installed extra adds."""
    core = needed_packages("rlinf")
    sizes = {name: installed_bytes(name) for name in core}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:top]
    extras = {}
    for extra in sorted(metadata.metadata("rlinf").get_all("Provides-Extra") or ()):
        try:
            added = needed_packages(f"rlinf[{extra}]") - core
        except metadata.PackageNotFoundError:
            continue
        extras[extra] = {"packages": len(added), "megabytes": _megabytes(map(installed_bytes, added))}
    return {
        "packages": len(core),
        "megabytes": _megabytes(sizes.values()),
        "largest_megabytes": {name: _megabytes([sizes[name]]) for name in largest},
        "extras_add": extras,
    }


def needed_packages(requirement: str) -> set[str]:
    """Return the names of a requirement and of everything that it requires, in this environment.

    Raises:
        PackageNotFoundError: One of them is not installed.
    """
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in found:
            continue
        found.add(key)
        for text in metadata.requires(wanted.name) or ():
            child = Requirement(text)
            if child.marker is None or any(child.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                waiting.append(child)
    return {name for name, _ in found}


def installed_bytes(package: str) -> int:
    """Return the bytes of a package's files; of an editable one those of its source."""
    distribution = metadata.distribution(package)
    paths = {Path(str(distribution.locate_file(file))) for file in distribution.files or ()}
    if package == "rlinf":
        paths |= set((REPO / "rlinf").rglob("*.py"))
    return sum(path.stat().st_size for path in paths if path.is_file())


def _megabytes(sizes: Iterable[int]) -> float:
    return round(sum(sizes) / MEGABYTE, 1)


def measure_installation() -> dict[str, Any]:
    """Install RLinf without extras into an empty environment; return its seconds, packages and MB.

    PyTorch is the build that runs this script, from wherever pip is configured to find it.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        before = _folder_bytes(environment)
        pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        start = time.perf_counter()
        install = [*pip, "install", "--quiet", f"torch=={metadata.version('torch')}", str(REPO)]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        listing = subprocess.run([*pip, "list", "--format=json"], check=True, capture_output=True, text=True).stdout
        names = {package["name"] for package in json.loads(listing)} - {"pip"}
        added = _folder_bytes(environment) - before
    return {"seconds": round(seconds, 1), "packages": len(names), "megabytes": _megabytes([added])}


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


# ---------------------------------------------------------------------------------------------------- first step


def measure_first_step(recipe: str = RECIPE, overrides: Iterable[str] = ()) -> dict[str, float]:
    """Run a recipe for one step; return the seconds until its first message, its first metrics and its end."""
    with tempfile.TemporaryDirectory() as folder:
        script = REPO / "examples" / "embodiment" / "train_embodied_agent.py"
        command = [sys.executable, str(script), "--config-name", recipe, "runner.max_epochs=1"]
        command += [f"runner.logger.log_path={folder}", *overrides]
        metrics = Path(folder) / recipe / "metrics.jsonl"
        environment = {**os.environ, "RLINF_PLAIN": "1", "PYTHONUNBUFFERED": "1"}
        marks: dict[str, float] = {}
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=REPO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        said: list[str] = []

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                marks.setdefault("first_message_seconds", time.perf_counter() - start)
                said.append(line)

        listener = threading.Thread(target=listen)
        listener.start()
        while process.poll() is None and "first_step_seconds" not in marks:
            if _has_first_step(metrics):
                marks["first_step_seconds"] = time.perf_counter() - start
            time.sleep(POLL_SECONDS)
        code = process.wait()
        marks["end_seconds"] = time.perf_counter() - start
        listener.join()
    if code or "first_step_seconds" not in marks:
        raise RuntimeError(f"{recipe} ended with {code} and without its first step:\n{''.join(said[-20:])}")
    return {name: round(seconds, 2) for name, seconds in marks.items()}


def _has_first_step(metrics: Path) -> bool:
    if not metrics.is_file():
        return False
    return any('"step": 1,' in line for line in metrics.read_text(encoding="utf-8").splitlines())


# ---------------------------------------------------------------------------------------------------------- main

PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "imports": lambda args: measure_imports(args.processes),
    "size": lambda args: measure_size(),
    "installation": lambda args: measure_installation(),
    "first_step": lambda args: measure_first_step(),
}


def main() -> None:
    """Measure, print and perhaps keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=10, help="fresh processes of which the median is taken")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[part for part in PARTS if part != "installation"])
    parser.add_argument("--install", action="store_true", help="also install into an empty environment, some minutes")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    parts = [part for part in PARTS if part in args.parts or (part == "installation" and args.install)]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=REPO, check=False)
    report = {
        "commit": commit.stdout.strip(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cpu_cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "recipe": RECIPE,
        **{part: PARTS[part](args) for part in parts},
    }
    print(json.dumps(report, indent=1))
    if args.save:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
