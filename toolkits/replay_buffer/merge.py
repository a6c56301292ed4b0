"""Joins saved replays: ``python toolkits/replay_buffer/merge.py REPLAY ... --output FOLDER``."""

import argparse
import sys
from pathlib import Path

from rlinf.cli.entry import run_and_report
from rlinf.data.replay.tools import merge_replays


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Save the transitions of several saved replays as one.")
    parser.add_argument("replay", nargs="+", type=Path, help="folder of a saved replay, or of its parts rank_<n>")
    parser.add_argument("--output", required=True, type=Path, help="new folder")
    args = parser.parse_args(argv)

    def action() -> None:
        print(f"{args.output}: {merge_replays(args.replay, args.output)} transitions")

    return run_and_report(action)


if __name__ == "__main__":
    sys.exit(main())
