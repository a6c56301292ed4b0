"""Writes the pages ``guides/mistakes.md`` of the documentation: wrong recipes and what RLinf answers to each.

``python toolkits/docs/mistakes.py`` writes them; with ``--check`` it only tells whether they are up to date.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlinf.cli.main import main as rlinf

ROOT = Path(__file__).resolve().parents[2]
CARTPOLE, PENDULUM, MATH = "gym_cartpole_ppo_mlp", "gym_pendulum_sac_mlp", "tiny_math_grpo"

MISTAKES: dict[str, tuple[tuple[str, ...], ...]] = {
    "typo": (
        (CARTPOLE, "actor.optim.lrr=0.001"),
        (CARTPOLE, "algorithm.gea_lambda=0.9"),
        (CARTPOLE, "evn.train.total_num_envs=8"),
        (CARTPOLE, "env.train.env_type=gymnasum"),
        (PENDULUM, "algorithm.loss_type=embodied_sca"),
        (CARTPOLE, "runner.logger.logger_backends=[wandbb]"),
    ),
    "type": (
        (CARTPOLE, "actor.optim.lr=fast"),
        (CARTPOLE, "actor.micro_batch_size=2.5"),
        (CARTPOLE, "actor.model.hidden_dims=64"),
        (CARTPOLE, "actor.model.precision=bfloat16"),
        (CARTPOLE, "actor.enable_offload=on"),
        (CARTPOLE, "runner.logger.experiment_name=7"),
    ),
    "range": (
        (CARTPOLE, "actor.optim.lr=-0.001"),
        (CARTPOLE, "algorithm.gamma=1.5"),
        (CARTPOLE, "runner.val_check_interval=0"),
        (MATH, "algorithm.sampling_params.top_k=0"),
    ),
    "place": (
        (CARTPOLE, "actor.lr=0.001"),
        (CARTPOLE, "rollout.total_num_envs=8"),
        (CARTPOLE, "env.train.task_name=reach-v3"),
        (PENDULUM, "algorithm.clip_ratio_low=0.1"),
        (CARTPOLE, "rollout.backend=huggingface"),
    ),
    "missing": (
        (CARTPOLE, "~actor.global_batch_size"),
        (CARTPOLE, "~env.eval"),
        (CARTPOLE, "~cluster.component_placement"),
        (MATH, "data.train_data_paths=[]"),
    ),
    "relation": (
        (CARTPOLE, "actor.global_batch_size=300"),
        (CARTPOLE, "env.train.total_num_envs=15", "rollout.pipeline_stage_num=2"),
        (CARTPOLE, "cluster.component_placement.rollout=0:0-2"),
        ("gym_cartpole_async_ppo_mlp", "rollout.enable_offload=true"),
        (CARTPOLE, "runner.keep_best=eval/return", "runner.val_check_interval=-1"),
    ),
}
"""Recipes with overrides that make them wrong, by kind."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a page says around the tables.

    Attributes:
        title: Heading of the page.
        introduction: Paragraphs below it.
        kinds: Headings of the tables, by the keys of ``MISTAKES``.
        columns: Headings of their columns.
    """

    title: str
    introduction: str
    kinds: dict[str, str]
    columns: tuple[str, str]


WORDS = {
    "en": Words(
        title="Mistakes in recipes and what RLinf says",
        introduction="""\
A recipe is read and checked as a whole before PyTorch or Ray is loaded. All that is wrong with it is reported at once:
one line for each problem, with the full path of the key, what was received, what is allowed and what to do. The
command ends with exit code 1.

What a valid recipe needs of the machine is checked next, before Ray starts: packages, data files, model folders, tasks
and registered environments. `rlinf plan` adds what is missing to its answer, except whether Gymnasium knows an id.

The tables show what stands behind `rlinf plan`, which checks a recipe without starting anything. The scripts under
`examples/` take the recipe as `--config-name` and the same overrides, and say the same.""",
        kinds={
            "typo": "Typing errors",
            "type": "Values of another type",
            "range": "Values out of range",
            "place": "Keys in the wrong place",
            "missing": "Keys that are missing",
            "relation": "Keys that do not fit together",
        },
        columns=("Recipe and overrides", "Answer"),
    ),
    "zh": Words(
        title="配方中的错误与 RLinf 的回答",
        introduction="""\
在加载 PyTorch 或 Ray 之前，整个配方会先被读取和检查。所有问题一次性报告：每个问题一行，给出键的完整路径、
收到的值、允许的值以及应当怎么做。命令以退出码 1 结束。

配方有效之后，会在启动 Ray 之前检查它对本机的要求：软件包、数据文件、模型目录、任务和已注册的环境。`rlinf plan`
会在回答之后列出缺少的部分，只是不检查 Gymnasium 是否认识某个 id。

表格中给出的是 `rlinf plan` 之后的参数；该命令只检查配方，不启动任何程序。`examples/` 下的脚本以
`--config-name` 接收配方名，使用相同的覆盖参数，回答也相同。""",
        kinds={
            "typo": "拼写错误",
            "type": "类型不对的值",
            "range": "超出范围的值",
            "place": "放错位置的键",
            "missing": "缺少的键",
            "relation": "互相矛盾的键",
        },
        columns=("配方与覆盖参数", "回答"),
    ),
}


def answer(arguments: Sequence[str]) -> str:
    """Return what ``rlinf plan`` prints to stderr about a wrong recipe.

    Args:
        arguments: The recipe's name and overrides.

    Raises:
        RuntimeError: Nothing is wrong with it.
    """
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = rlinf(["plan", *arguments])
    if code != 1:
        raise RuntimeError(f"rlinf plan {shlex.join(arguments)}: ends with exit code {code}; it is no mistake.")
    return errors.getvalue()


def page(words: Words) -> str:
    """Return the Markdown of one page."""
    blocks = [f"# {words.title}", words.introduction]
    for kind, mistakes in MISTAKES.items():
        rows = [f"| {words.columns[0]} | {words.columns[1]} |", "|---|---|"]
        rows += [f"| {_code(shlex.join(mistake))} | {_problems(answer(mistake))} |" for mistake in mistakes]
        blocks += [f"## {words.kinds[kind]}", "\n".join(rows)]
    return "\n\n".join(blocks) + "\n"


def page_path(language: str) -> Path:
    """Return the file of the page in one language."""
    return ROOT / "docs" / f"source-{language}" / "guides" / "mistakes.md"


def _problems(text: str) -> str:
    lines = [
        line.removeprefix("  - ") for line in text.strip().splitlines() if not line.startswith("Error: The recipe")
    ]
    return "<br>".join(_code(line) for line in lines)


def _code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def main() -> int:
    """Write the pages, or tell whether they are up to date: 1 where they are not."""
    parser = argparse.ArgumentParser(description="Write guides/mistakes.md of the documentation.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is out of date")
    check = parser.parse_args().check
    os.chdir(ROOT)
    old = []
    for language, words in WORDS.items():
        path, text = page_path(language), page(words)
        if check and (not path.is_file() or path.read_text(encoding="utf-8") != text):
            old.append(str(path.relative_to(ROOT)))
        elif not check:
            path.write_text(text, encoding="utf-8")
    if old:
        print(f"{', '.join(old)}: out of date. Run: python toolkits/docs/mistakes.py", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
