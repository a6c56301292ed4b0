"""Metrics that a recipe names are ones that its run will produce, as far as that is known before it runs."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.metric_names import EPISODE_METRICS, eval_metric_names
from rlinf.config.schema.root import EmbodiedConfig, RLinfConfig
from rlinf.config.schema.runner import WandbConfig
from rlinf.registry import closest

# Plug-ins add metrics of their own: only a name that is nearly a known one is taken for a slip.
_SIMILARITY = 0.8


def check_metric_names(check: Check[RLinfConfig]) -> None:
    """Goals, and the metric that the best checkpoint is chosen by, are no misspelt names."""
    cfg = check.cfg
    names = eval_metric_names(cfg)
    for name in cfg.runner.stop_at:
        if not name.startswith("eval/"):
            check.problem(
                f"runner.stop_at.{name}",
                f"received '{name}'; allowed: metrics of evaluations. Did you mean 'eval/{name.rsplit('/', 1)[-1]}'?",
            )
            continue
        _check(name, f"runner.stop_at.{name}", names, check)
    if cfg.runner.keep_best is not None:
        training = [f"env/{name}" for name in EPISODE_METRICS] if isinstance(cfg, EmbodiedConfig) else []
        _check(cfg.runner.keep_best, "runner.keep_best", [*names, *training], check)


def _check(name: str, path: str, known: list[str], check: Check[RLinfConfig]) -> None:
    is_by_task = any(name.startswith(f"{metric}/") for metric in known)
    guess = closest(name, known, cutoff=_SIMILARITY)
    if name not in known and not is_by_task and guess is not None:
        check.problem(path, f"received '{name}', which no evaluation produces. Did you mean '{guess}'?")


def check_wandb(check: Check[RLinfConfig]) -> None:
    """Keys of W&B have an effect."""
    logger = check.cfg.runner.logger
    if logger.wandb != WandbConfig() and "wandb" not in logger.logger_backends:
        check.problem(
            "runner.logger.wandb",
            "is not used: runner.logger.logger_backends does not hold wandb. Add it there, or remove the section.",
        )


RULES = (check_metric_names, check_wandb)
