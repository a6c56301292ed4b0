"""Write down what an evaluation of a suite found, with all that it depends on; compare two of them.

``python evaluations/summarize.py RECIPE [key=value ...]`` reads the newest evaluation of a recipe and writes
``evaluation.json`` into its folder; ``python evaluations/summarize.py FOLDER`` does so for an evaluation's own folder.
``--compare FILE FILE`` prints the difference of two such files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import CalvinEnvConfig, EnvConfig, LiberoEnvConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.envs.simulators.calvin_env import calvin_chains
from rlinf.envs.simulators.libero.libero_starts import libero_starts
from rlinf.errors import ConfigError
from rlinf.runners.output_paths import experiment_folder
from rlinf.telemetry.evaluation import EvalEpisode, success_interval
from rlinf.telemetry.rundir import CONFIG_FILE, EVAL_RUNS_FOLDER, EVALUATIONS_FOLDER

if __package__ in {None, ""}:
    # Run by its path, a script finds the modules of its own folder alone.
    sys.path.insert(0, str(Path(__file__).parents[1]))
from evaluations.chains import summarize_chains
from evaluations.comparison import differences

SUMMARY_FILE = "evaluation.json"


def read_episodes(file: Path) -> list[EvalEpisode]:
    """Return the episodes of an evaluation."""
    return [EvalEpisode(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def find_record(folder: Path) -> Path:
    """Return the file in which an evaluation's run says what it depends on, of the one that was finished last.

    Args:
        folder: That of the evaluation, or of the experiment, which holds those of its evaluations.

    Raises:
        FileNotFoundError: There is none.
    """
    places = (f"{EVALUATIONS_FOLDER}/step_*.json", f"{EVAL_RUNS_FOLDER}/*/{EVALUATIONS_FOLDER}/step_*.json")
    files = [file for place in places for file in folder.glob(place)]
    if not files:
        raise FileNotFoundError(f"'{folder}' holds no evaluation; run evaluations/eval_embodiment.sh first.")
    return max(files, key=lambda file: datetime.fromisoformat(_read(file)["finished_at"]))


def played_starts(env: EnvConfig, episodes: Sequence[EvalEpisode]) -> Counter[str]:
    """Return how often each start state was played, by a name that says which it is.

    Args:
        env: The section of the evaluation.
        episodes: All of them.

    Raises:
        ConfigError: They do not say where they began.
    """
    ids = [(episode, episode.start) for episode in episodes if episode.start is not None]
    if len(ids) < len(episodes):
        raise ConfigError("The episodes do not say which start states they began from; evaluate again.")
    if isinstance(env, CalvinEnvConfig):
        count = len(calvin_chains(env))
        return Counter(f"chain {start % count}" for _, start in ids)
    if not isinstance(env, LiberoEnvConfig):
        return Counter(f"{episode.task} {start}" for episode, start in ids)
    starts = libero_starts(env)
    return Counter(
        "task {} trial {}".format(*starts.start(start, starts.own_task(episode.env // env.group_size, env.num_groups)))
        for episode, start in ids
    )


def summarize(cfg: EmbodiedConfig, episodes: Sequence[EvalEpisode], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return success of each task and of all, coverage of the start states, and what the evaluation depends on.

    Args:
        cfg: The recipe of the evaluation.
        episodes: All of them.
        record: What its run has written down (``rlinf.runners.evaluation_record``).

    Raises:
        ConfigError: The episodes do not say which task they are of, or where they began.
    """
    env = cfg.env.eval
    assert env is not None
    if not episodes or not all(episode.task for episode in episodes):
        raise ConfigError(f"env.eval.env_type={env.env_type}: its episodes do not say which task they are of.")
    played = played_starts(env, episodes)
    found = summarize_chains(env, episodes) if isinstance(env, CalvinEnvConfig) else _by_task(episodes)
    return {
        **found,
        "starts": {
            "played": played.total(),
            "distinct": len(played),
            "of": _num_starts(env),
            "sha256": hashlib.sha256(json.dumps(sorted(played.items())).encode()).hexdigest()[:16],
        },
        **record,
    }


def _num_starts(env: EnvConfig) -> int | None:
    if isinstance(env, LiberoEnvConfig):
        return len(libero_starts(env))
    return len(calvin_chains(env)) if isinstance(env, CalvinEnvConfig) else env.num_start_states


def _by_task(episodes: Sequence[EvalEpisode]) -> dict[str, Any]:
    tasks = sorted({episode.task for episode in episodes})
    return {
        "all": _success(episodes),
        "tasks": {task: _success([episode for episode in episodes if episode.task == task]) for task in tasks},
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


def compare(first: Path, second: Path, allowed: Collection[str] = ()) -> int:
    """Print the success of two evaluations of one kind; return the exit code.

    Args:
        first: File of an evaluation.
        second: File of another.
        allowed: Keys in which they may differ besides those that always may.
    """
    one, other = _read(first), _read(second)
    if reasons := differences(one, other, allowed):
        print("These evaluations cannot be compared; they differ in", *reasons, sep="\n  ", file=sys.stderr)
        return 1
    rows = {
        **{task: (one["tasks"].get(task), other["tasks"].get(task)) for task in {**one["tasks"], **other["tasks"]}},
        "all": (one["all"], other["all"]),
    }
    for task, (left, right) in rows.items():
        cells = [f"{cell['success']:.3f} {cell['interval']}" if cell else "-" for cell in (left, right)]
        print(f"{task}: {cells[0]} and {cells[1]}")
    return 0


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE")
    parser.add_argument("--allow", action="append", default=[], metavar="KEY", help="may differ, e.g. versions.commit")
    parser.add_argument("recipe", nargs="?", help="recipe that was evaluated, or the folder of an evaluation")
    parser.add_argument("overrides", nargs="*", help="those of the evaluation")
    parsed = parser.parse_args(arguments)
    if parsed.compare:
        first, second = parsed.compare
        return compare(first, second, parsed.allow)
    if parsed.recipe is None:
        parser.error("name a recipe or an evaluation's folder, or two files behind --compare")
    folder = Path(parsed.recipe)
    if not folder.is_dir():
        cfg = validate_cfg(load_recipe(parsed.recipe, [*parsed.overrides, "runner.only_eval=true"]))
        folder = experiment_folder(cfg)
    return write_summary(find_record(folder))


def write_summary(record: Path) -> int:
    """Write ``evaluation.json`` into an evaluation's folder and print how it went; return the exit code.

    Args:
        record: The file in which its run says what it depends on.

    Raises:
        ConfigError: It is no evaluation of a policy in an environment.
    """
    run = record.parent.parent
    # The folder of an evaluation lies in its experiment's, which a recipe does not say.
    cfg = validate_cfg(load_recipe(str(run / CONFIG_FILE), ["runner.logger.experiment_name=evaluation"]))
    if not isinstance(cfg, EmbodiedConfig) or cfg.env.eval is None:
        raise ConfigError(f"'{run}' holds no evaluation of a policy in an environment.")
    summary = summarize(cfg, read_episodes(record.with_suffix(".jsonl")), _read(record))
    result, starts = run / SUMMARY_FILE, summary["starts"]
    result.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    if "in_a_row" in summary:
        rates = ", ".join(f"{count}: {cell['success']:.3f}" for count, cell in summary["in_a_row"].items())
        print(f"Tasks in a row: {rates}; mean {summary['mean_length']:.3f}")
    else:
        low, high = summary["all"]["interval"]
        print(f"Success {summary['all']['success']:.3f} [{low:.3f}, {high:.3f}] over {len(summary['tasks'])} tasks")
    of = "" if starts["of"] is None else f" of {starts['of']}"
    print(f"{starts['distinct']}{of} start states, {starts['played']} episodes: {result}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
