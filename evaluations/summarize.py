"""Write down what an evaluation of a suite found, with all that it depends on; compare two of them.

``python evaluations/summarize.py RECIPE [key=value ...]`` reads the newest evaluation of a recipe and writes
``evaluation.json`` next to it. ``--compare FILE FILE`` prints the difference of two such files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import CalvinEnvConfig, LiberoEnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.envs.reset_states import ResetStates
from rlinf.envs.simulators.calvin_env import calvin_versions
from rlinf.envs.simulators.libero.libero_assets import libero_versions
from rlinf.envs.simulators.libero.libero_starts import libero_starts
from rlinf.errors import ConfigError
from rlinf.runners.output_paths import experiment_folder
from rlinf.telemetry.evaluation import EvalEpisode, success_interval

if __package__ in {None, ""}:
    # Run by its path, a script finds the modules of its own folder alone.
    sys.path.insert(0, str(Path(__file__).parents[1]))
from evaluations.chains import SETTINGS as CHAIN_SETTINGS
from evaluations.chains import summarize_chains

SUMMARY_FILE = "evaluation.json"
_SETTINGS: tuple[str, ...] = (
    "task_suite_name",
    "task_id_filter",
    "trial_id_filter",
    "action_convention",
    "num_settle_steps",
    "reset_gripper_open",
    "image_size",
    "render_quality",
    "max_episode_steps",
)
"""Keys of the environment that results depend on."""


def read_episodes(file: Path) -> list[EvalEpisode]:
    """Return the episodes of an evaluation."""
    return [EvalEpisode(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def newest_evaluation(folder: Path) -> Path:
    """Return the file with the episodes of an experiment's newest evaluation by itself.

    Raises:
        FileNotFoundError: There is none.
    """
    files = list(folder.glob("eval_only/*/evaluations/step_*.jsonl"))
    if not files:
        raise FileNotFoundError(f"'{folder}' holds no evaluation; run evaluations/eval_embodiment.sh first.")
    return max(files, key=lambda file: file.stat().st_mtime)


def played_starts(env: LiberoEnvConfig, episodes: Iterable[EvalEpisode]) -> Counter[tuple[int, int]]:
    """Return how often each (task, trial) was played."""
    starts, states = libero_starts(env), ResetStates(env, num_envs=env.total_num_envs, first_env=0)
    num_groups = -(-env.total_num_envs // env.group_size)
    played: Counter[tuple[int, int]] = Counter()
    for episode in episodes:
        number = states.ids(episode.epoch, np.full(env.total_num_envs, episode.number))[episode.env]
        group = episode.env // env.group_size
        played[starts.start(int(number), starts.own_task(group, num_groups))] += 1
    return played


def summarize(cfg: EmbodiedConfig, episodes: Sequence[EvalEpisode], versions: dict[str, str]) -> dict[str, Any]:
    """Return success of each task and of all, coverage of the start states, settings and versions.

    Args:
        cfg: The recipe of the evaluation.
        episodes: All of them.
        versions: Of the simulator and its assets.
    """
    env = cfg.env.eval
    if isinstance(env, CalvinEnvConfig):
        found, names = summarize_chains(env, episodes), CHAIN_SETTINGS
    else:
        assert isinstance(env, LiberoEnvConfig)
        found, names = _summarize_libero(env, episodes), _SETTINGS
    return {
        **found,
        "settings": {name: asdict(env)[name] for name in names},
        "versions": versions,
        "model": {
            "model_type": cfg.actor.model.model_type,
            "model_path": getattr(cfg.actor.model, "model_path", None),
            "ckpt_path": cfg.runner.ckpt_path,
            "num_action_chunks": cfg.actor.model.num_action_chunks,
        },
    }


def _summarize_libero(env: LiberoEnvConfig, episodes: Sequence[EvalEpisode]) -> dict[str, Any]:
    played = played_starts(env, episodes)
    tasks = sorted({episode.task for episode in episodes})
    return {
        "all": _success(episodes),
        "tasks": {task: _success([episode for episode in episodes if episode.task == task]) for task in tasks},
        "starts": {"played": sum(played.values()), "distinct": len(played), "of": len(libero_starts(env))},
    }


def _success(episodes: Sequence[EvalEpisode]) -> dict[str, Any]:
    successes = sum(episode.metrics.get("success_once", 0.0) for episode in episodes)
    low, high = success_interval(successes, len(episodes))
    return {
        "episodes": len(episodes),
        "successes": int(successes),
        "success": round(successes / len(episodes), 4),
        "interval": [round(low, 4), round(high, 4)],
    }


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return why two evaluations cannot be compared, one line each; empty where they can."""
    return [
        f"{section}.{name}: {first[section].get(name)!r} and {second[section].get(name)!r}"
        for section in ("settings", "versions", "starts")
        for name in sorted(first[section].keys() | second[section].keys())
        if first[section].get(name) != second[section].get(name)
    ]


def compare(first: Path, second: Path) -> int:
    """Print the success of two evaluations of one kind; return the exit code."""
    one, other = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
    if reasons := differences(one, other):
        print("These evaluations cannot be compared; they differ in", *reasons, sep="\n  ", file=sys.stderr)
        return 1
    rows = {
        **{task: (one["tasks"][task], other["tasks"].get(task)) for task in one["tasks"]},
        "all": (one["all"], other["all"]),
    }
    for task, (left, right) in rows.items():
        cells = [f"{cell['success']:.3f} {cell['interval']}" if cell else "-" for cell in (left, right)]
        print(f"{task}: {cells[0]} and {cells[1]}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE")
    parser.add_argument("recipe", nargs="?", help="name or path of the recipe that was evaluated")
    parser.add_argument("overrides", nargs="*", help="those of the evaluation")
    parsed = parser.parse_args(arguments)
    if parsed.compare:
        return compare(*parsed.compare)
    if parsed.recipe is None:
        parser.error("name a recipe, or two files behind --compare")
    cfg = validate_cfg(load_recipe(parsed.recipe, [*parsed.overrides, "runner.only_eval=true"]))
    if not isinstance(cfg, EmbodiedConfig) or not isinstance(cfg.env.eval, (LiberoEnvConfig, CalvinEnvConfig)):
        raise ConfigError("env.eval.env_type: only evaluations of libero and calvin are summarized.")
    env = cfg.env.eval
    file = newest_evaluation(experiment_folder(cfg))
    versions = calvin_versions(env) if isinstance(env, CalvinEnvConfig) else libero_versions(env.assets_path)
    summary = summarize(cfg, read_episodes(file), versions)
    result = file.parent.parent / SUMMARY_FILE
    result.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    starts = summary["starts"]
    if "mean_length" in summary:
        rates = ", ".join(f"{count}: {cell['success']:.3f}" for count, cell in summary["in_a_row"].items())
        print(f"Tasks in a row: {rates}; mean {summary['mean_length']:.3f}")
    print(f"{starts['distinct']} of {starts['of']} start states, {starts['played']} episodes: {result}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
