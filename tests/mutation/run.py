"""Plants each fault of the table and runs its tests: which ones no test notices?

Called by ``bash tests/run_tests.sh --mutation``. Each of a few slots holds a copy of the repository. One parent process
imports the heavy packages once, never ``rlinf``, and forks a child per fault: it runs pytest inside a copy that has the
fault.
"""

from __future__ import annotations

import os

# Forked children must not inherit a parent that has threads: numerical libraries start theirs while they are imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")

import argparse
import contextlib
import difflib
import gc
import importlib
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.mutation.fault import Fault
from tests.mutation.table import ROOT, Row, edited, load, problems, select

# What tests read: the rest of a working copy (environments, results, caches) is not copied.
COPIED = (
    *("rlinf", "tests", "examples", "evaluations", "toolkits", "benchmarks", "requirements", "docs", "ray_utils"),
    *(".cursor", ".ci"),
)
SKIPPED = shutil.ignore_patterns("__pycache__", "_build", "outputs", "logs", ".hypothesis")
PRELOADED = (
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.utils.tensorboard",
    "transformers.models.qwen2.modeling_qwen2",
    "safetensors.torch",
    "peft",
    "pytest",
    "hypothesis",
    "gymnasium",
    "hydra",
    "pydantic",
    "ray",
    "rich",
    "zmq",
)
# A run that takes this many times as long as without the fault hangs; a busy machine is slower at times.
PATIENCE = 5
SHORTEST_LIMIT_SECONDS = 90
BASELINE_LIMIT_SECONDS = 900
# Exit code of a child in which the mutated module cannot be imported; pytest's own end at 5.
CANNOT_BE_IMPORTED = 99
ORIGINAL = "original.before_the_fault"
MARK = "RLINF_MUTATION_RUN"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault.

    Attributes:
        row: The fault and its area.
        verdict: ``killed`` (a test failed), ``survived`` (all passed) or ``error`` (it says nothing about the tests).
        reason: Of an error: why; of a killed one, whether it was by a time-out.
        seconds: Wall-clock time of its tests.
        output: Last lines of pytest, for a survivor or an error.
    """

    row: Row
    verdict: str
    reason: str
    seconds: float
    output: str


@dataclass(slots=True)
class Job:
    """Tests to run in a copy, with a fault or without one.

    Attributes:
        tests: Test files or node ids.
        row: The fault; None runs the tests on the sources as they are.
        limit_seconds: After this time the tests count as hanging.
    """

    tests: tuple[str, ...]
    row: Row | None = None
    limit_seconds: float = BASELINE_LIMIT_SECONDS


@dataclass(slots=True)
class Child:
    """A forked process that runs a job.

    Attributes:
        pid: Its process id, which is also its session.
        job: What it runs.
        slot: The copy that it runs in.
        mark: Value of the environment variable that its descendants carry.
        log: Where its output goes.
        started: Time at which it was forked, in seconds.
    """

    pid: int
    job: Job
    slot: Path
    mark: str
    log: Path
    started: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended: exit code (None: it was ended at its limit), time in seconds and last lines of output."""

    job: Job
    code: int | None
    seconds: float
    output: str


def preload(names: Sequence[str]) -> None:
    """Import what the tests need anyway, apart from ``rlinf``, which the fault may change."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "rlinf" not in sys.modules, "a preloaded package imports rlinf"
    gc.collect()
    gc.freeze()


def make_slot(root: Path, slot: Path) -> Path:
    """Copy the repository's needed folders and the files beside them to ``slot``, and return it."""
    slot.mkdir()
    for path in root.iterdir():
        if path.is_file() and not path.is_symlink():
            shutil.copy2(path, slot)
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, slot / name, ignore=SKIPPED)
    return slot


def run_tests(root: Path, slot: Path, job: Job, log: Path) -> int:
    """Run the tests of a job inside the copy and return the exit code; only ever called in a forked child."""
    os.chdir(slot)
    with log.open("wb", buffering=0) as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    places = {str(root), str(ROOT), ""}
    sys.path[:] = [str(slot), *(path for path in sys.path if path not in places)]
    os.environ["PYTHONPATH"] = str(slot)
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    import pytest

    timeout = f"--timeout={job.limit_seconds:.0f}"
    code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(slot), timeout, *job.tests]))
    if code == pytest.ExitCode.TESTS_FAILED and job.row is not None and not can_be_imported(job.row.fault.file):
        return CANNOT_BE_IMPORTED
    return code


def can_be_imported(file: str) -> bool:
    """Return whether the module of a source file can be imported, optional packages apart."""
    parts = Path(file).with_suffix("").parts
    if parts[0] != "rlinf":
        return True
    try:
        importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    except ModuleNotFoundError as error:
        return error.name is not None and error.name.split(".")[0] != "rlinf"
    except Exception as error:  # noqa: BLE001 - whatever the fault makes the module raise
        print(f"{file} cannot be imported: {error!r}")
        return False
    return True


def fork(root: Path, slot: Path, job: Job, log: Path) -> Child:
    """Start a job in a child with a session of its own."""
    assert len(os.listdir("/proc/self/task")) == 1, "forking a process that has threads"
    mark = f"{os.getpid()}-{log.stem}"
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return Child(pid, job, slot, mark, log)
    code = 70
    try:
        os.setsid()
        os.environ[MARK] = mark
        code = run_tests(root, slot, job, log)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end(child: Child) -> None:
    """End whatever a child left running: its session, and what carries its mark (Ray starts sessions of its own)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == child.mark:
                process.kill()


def poll(child: Child) -> Ended | None:
    """Return how a child ended, or None while it runs; one far beyond its limit is ended."""
    seconds = time.monotonic() - child.started
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    # A test is timed out by pytest itself; this is for what no longer listens to signals.
    if not pid and seconds < 2 * child.job.limit_seconds + 60:
        return None
    end(child)
    if not pid:
        os.waitpid(child.pid, 0)
    code = os.waitstatus_to_exitcode(status) if pid else None
    lines = child.log.read_text(encoding="utf-8", errors="replace").splitlines()
    return Ended(child.job, code, seconds, "\n".join(lines[-15:]))


def plant(fault: Fault, slot: Path) -> None:
    """Write the edited file into a copy, and keep the original beside it."""
    text = edited(fault, slot)
    shutil.copy2(slot / fault.file, slot / ORIGINAL)
    (slot / fault.file).write_text(text, encoding="utf-8")


def remove(fault: Fault, slot: Path) -> None:
    """Put the original back."""
    (slot / ORIGINAL).replace(slot / fault.file)


def run_jobs(root: Path, slots: list[Path], jobs: list[Job]) -> Iterator[Ended]:
    """Run jobs side by side, one in each copy, and yield how they ended as they do."""
    waiting, free, children = list(reversed(jobs)), list(slots), list[Child]()
    logs = slots[0].parent
    try:
        while waiting or children:
            while waiting and free:
                job, slot = waiting.pop(), free.pop()
                if job.row is not None:
                    plant(job.row.fault, slot)
                children.append(fork(root, slot, job, logs / f"{id(job)}.log"))
            time.sleep(0.02)
            for child in list(children):
                if (ended := poll(child)) is None:
                    continue
                children.remove(child)
                if child.job.row is not None:
                    remove(child.job.row.fault, child.slot)
                free.append(child.slot)
                yield ended
    finally:
        for child in children:
            end(child)


def judge(ended: Ended) -> Outcome:
    """Turn the exit code of a fault's tests into a verdict."""
    reasons = {
        2: "the tests cannot be collected",
        3: "pytest failed",
        4: "the tests cannot be collected",
        5: "no test was selected",
        CANNOT_BE_IMPORTED: "the edited module cannot be imported",
        None: f"the tests did not end within {ended.seconds:.0f} s",
    }
    verdict = {0: "survived", 1: "killed"}.get(-1 if ended.code is None else ended.code, "error")
    reason = reasons.get(ended.code, f"exit code {ended.code}") if verdict == "error" else ""
    if verdict == "killed" and "Timeout (>" in ended.output:
        # Of a fault that makes something wait for ever, or of a machine that is too busy.
        reason = "a test timed out"
    assert ended.job.row is not None
    return Outcome(ended.job.row, verdict, reason, ended.seconds, "" if verdict == "killed" else ended.output)


def make_baselines(rows: list[Row]) -> list[Job]:
    """Return a job for each test file: every test of it that a row names, once."""
    named: dict[str, dict[str, None]] = {}
    for test in (test for row in rows for test in row.fault.tests):
        named.setdefault(file_of(test), {})[test] = None
    return [Job((file,) if file in tests else tuple(tests)) for file, tests in named.items()]


def file_of(test: str) -> str:
    """Return the file of a node id."""
    return test.partition("::")[0]


def run_baselines(root: Path, slots: list[Path], rows: list[Row]) -> dict[str, Ended]:
    """Run the tests without a fault; return how they ended, by test file."""
    jobs, ends = make_baselines(rows), dict[str, Ended]()
    for ended in run_jobs(root, slots, jobs):
        file = file_of(ended.job.tests[0])
        ends[file] = ended
        print(f"{f'{len(ends)}/{len(jobs)}':>9} without a fault {ended.seconds:5.1f} s  {file}", flush=True)
    return ends


def run_faults(root: Path, rows: list[Row], num_jobs: int) -> Iterator[Outcome]:
    """Run all tests without a fault, then every fault's tests with it.

    Args:
        root: The repository.
        rows: The faults.
        num_jobs: How many run side by side.

    Yields:
        What became of each fault, in the order in which they end.
    """
    good = []
    for row in rows:
        if found := list(problems(row.fault, root)):
            yield Outcome(row, "error", "; ".join(found), 0.0, "")
        else:
            good.append(row)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        slots = [make_slot(root, Path(folder).resolve() / f"slot{i}") for i in range(num_jobs)]
        baselines = run_baselines(root, slots, good)
        jobs = []
        for row in good:
            ends = [baselines[file] for file in dict.fromkeys(map(file_of, row.fault.tests))]
            failed = next((ended for ended in ends if ended.code != 0), None)
            if failed is None:
                limit = max(PATIENCE * sum(ended.seconds for ended in ends), SHORTEST_LIMIT_SECONDS)
                jobs.append(Job(row.fault.tests, row, limit))
            else:
                reason = f"{file_of(failed.job.tests[0])} fails without the fault (exit code {failed.code})"
                yield Outcome(row, "error", reason, failed.seconds, failed.output)
        yield from map(judge, run_jobs(root, slots, jobs))


def difference(outcome: Outcome, root: Path) -> str:
    """Return the fault as a unified diff."""
    fault = outcome.row.fault
    try:
        before = (root / fault.file).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    after = edited(fault, root).splitlines()
    return "\n".join(difflib.unified_diff(before, after, fault.file, fault.file, n=1, lineterm=""))


def report(outcomes: list[Outcome], root: Path, seconds: float) -> dict[str, object]:
    """Print survivors, errors and the share killed; return the same for a JSON file."""
    for outcome in outcomes:
        if outcome.verdict == "killed":
            continue
        fault = outcome.row.fault
        print(f"\n{outcome.verdict.upper()} [{outcome.row.area}] {fault.file}: {fault.what}")
        print(f"  tests: {' '.join(fault.tests)}\n{difference(outcome, root)}")
        if outcome.verdict == "error":
            print(f"  {outcome.reason}\n{outcome.output}")
    print(f"\n{'area':<28} {'faults':>6} {'killed':>6} {'survived':>8} {'errors':>6} {'share':>6}")
    areas = {}
    for area in [*sorted({outcome.row.area for outcome in outcomes}), "total"]:
        counts = Counter(outcome.verdict for outcome in outcomes if area in ("total", outcome.row.area))
        verdicts = {verdict: counts[verdict] for verdict in ("killed", "survived", "error")}
        areas[area] = {**verdicts, "faults": counts.total(), "share_killed": counts["killed"] / max(counts.total(), 1)}
        numbers = f"{counts.total():>6} {counts['killed']:>6} {counts['survived']:>8} {counts['error']:>6}"
        print(f"{area:<28} {numbers} {areas[area]['share_killed']:>6.3f}")
    print(f"{seconds:.0f} s")
    faults = [
        {
            "area": outcome.row.area,
            "file": outcome.row.fault.file,
            "what": outcome.row.fault.what,
            "verdict": outcome.verdict,
            "reason": outcome.reason,
            "seconds": round(outcome.seconds, 1),
        }
        for outcome in outcomes
    ]
    return {"areas": areas, "seconds": round(seconds, 1), "faults": faults}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; an area without faults is an error of usage."""
    parser = argparse.ArgumentParser(
        prog="bash tests/run_tests.sh --mutation",
        description="Plant each fault of tests/mutation/faults and run its tests; exit 1 where too many survive.",
    )
    parser.add_argument(
        "areas",
        nargs="*",
        metavar="AREA",
        help="prefix of a file name in tests/mutation/faults, or of a path such as rlinf/algorithms; default: all",
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes; default: the cores")
    parser.add_argument("--json", type=Path, default=None, help="default: results/mutation.json")
    parser.add_argument("--minimum", type=float, default=0.97, help="share that must be killed; default: %(default)s")
    parser.add_argument("--root", type=Path, default=ROOT, help="a repository with such a table; default: this one")
    parser.add_argument(
        "--preload", nargs="*", default=PRELOADED, metavar="MODULE", help="imported once, not per fault"
    )
    chosen = parser.parse_args(arguments)
    chosen.root = chosen.root.resolve()
    chosen.json = chosen.json or chosen.root / "results" / "mutation.json"
    chosen.rows = select(load(chosen.root), chosen.areas)
    if not chosen.rows:
        parser.error(f"no fault in {', '.join(chosen.areas)}; areas: {sorted({row.area for row in load(chosen.root)})}")
    return chosen


def main(arguments: list[str]) -> int:
    """Run the chosen faults; return 1 where the share killed is below the minimum, or a row is an error."""
    chosen = parse_arguments(arguments)
    started = time.monotonic()
    preload(chosen.preload)
    outcomes = []
    for outcome in run_faults(chosen.root, chosen.rows, max(min(chosen.jobs, len(chosen.rows)), 1)):
        outcomes.append(outcome)
        fault = outcome.row.fault
        place = f"{len(outcomes)}/{len(chosen.rows)}"
        print(f"{place:>9} {outcome.verdict:<8} {outcome.seconds:5.1f} s  {fault.file}: {fault.what}", flush=True)
        if outcome.verdict == "killed" and outcome.reason:
            print(f"{'':>9} {outcome.reason}", flush=True)
    result = report(outcomes, chosen.root, time.monotonic() - started)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    enough = verdicts["killed"] >= chosen.minimum * len(outcomes)
    return 0 if enough and not verdicts["error"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
