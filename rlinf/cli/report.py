"""``rlinf report``: one page about a run, or about several, that a browser opens without a network."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlinf.errors import ReportError
from rlinf.telemetry.report import find_runs, write_report
from rlinf.telemetry.rundir import REPORT_FILE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf report``."""
    parser.add_argument(
        "log_paths",
        nargs="+",
        metavar="LOG_PATH",
        help="folder of a run, or one above runs; several runs share the same plots",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"the page; default {REPORT_FILE} in the run's folder, or in the working folder for several runs",
    )


def run(args: argparse.Namespace) -> int:
    """Write the page.

    Returns:
        0.

    Raises:
        ReportError: A path holds no run, or the page's folder does not exist.
        MissingPackageError: plotly is not installed.
    """
    runs = find_runs(args.log_paths)
    output = Path(args.output) if args.output else (runs[0].path if len(runs) == 1 else Path.cwd()) / REPORT_FILE
    if not output.absolute().parent.is_dir():
        raise ReportError(f"--output: the folder {output.absolute().parent} does not exist; make it, or name another")
    write_report(runs, output)
    names = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    print(f"{names}: {output.absolute()} ({output.stat().st_size / 1e6:.1f} MB)")
    return 0
