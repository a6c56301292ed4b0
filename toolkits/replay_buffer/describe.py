"""Says what saved replays hold: ``python toolkits/replay_buffer/describe.py REPLAY ...``."""

import argparse
import sys
from pathlib import Path

from rlinf.cli.entry import run_and_report
from rlinf.data.replay.tools import describe_replay


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Say what saved replays hold, and check them against their checksums.")
    parser.add_argument("replay", nargs="+", type=Path, help="folder of a saved replay, or of its parts rank_<n>")
    args = parser.parse_args(argv)

    def action() -> None:
        for path in args.replay:
            found = describe_replay(path)
            print(f"{path}: {found.transitions} transitions in {found.parts} part(s), {found.bytes / 1e6:.1f} MB")
            print(f"  rewards {found.reward_min:.4g} to {found.reward_max:.4g}, mean {found.reward_mean:.4g}")
            print(f"  {found.terminated} terminated")
            for name, entry in found.tensors.items():
                print(f"  {name}: {entry['dtype']} {entry['shape']}")

    return run_and_report(action)


if __name__ == "__main__":
    sys.exit(main())
