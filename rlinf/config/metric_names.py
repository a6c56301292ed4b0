"""Names of the metrics that evaluations produce, so that a recipe that names one can be checked before it runs."""

from __future__ import annotations

from rlinf.config.schema.env import D4RLEnvConfig, EnvConfig
from rlinf.config.schema.root import EmbodiedConfig, LanguageConfig, RLinfConfig, SftConfig, ValueConfig
from rlinf.config.schema.value import SuccessLossConfig

EPISODE_METRICS = ("success_once", "success_at_end", "return", "reward", "episode_len")
"""What every environment reports of an episode that has ended; under ``env/`` in training, ``eval/`` in evaluations."""
SCORE_METRIC = "normalized_score"
"""What an environment with reference returns reports in addition."""
RESPONSE_METRICS = ("accuracy", "reward", "response_length")
"""What an evaluation reports of responses to prompts; with several to a prompt also ``avg@n`` and ``pass@k``."""
EXAMPLE_METRICS = ("loss", "token_accuracy")
"""What an evaluation reports of given responses."""
VALUE_METRICS = ("loss", "error", "rank_correlation")
"""What an evaluation reports of a model that judges frames."""
CLASSIFIER_METRICS = ("loss", "error", "accuracy", "precision", "recall")
"""What it reports of a classifier of success."""
REFUSED_METRIC = "wrong_sentences_refused"
"""What it reports in addition of one that also reads sentences of other tasks."""


def eval_metric_names(cfg: RLinfConfig) -> list[str]:
    """Return the names of the metrics that evaluations of a recipe produce.

    Metrics by task of an environment, and those that a plug-in's runner adds, are not among them: a run knows these.

    Args:
        cfg: The recipe.
    """
    if isinstance(cfg, EmbodiedConfig):
        scored = cfg.env.eval is not None and has_score(cfg.env.eval)
        return [f"eval/{name}" for name in (*EPISODE_METRICS, *([SCORE_METRIC] if scored else []))]
    if isinstance(cfg, ValueConfig):
        loss: object = cfg.algorithm.loss
        if not isinstance(loss, SuccessLossConfig):
            return [f"eval/{name}" for name in VALUE_METRICS]
        refused = [REFUSED_METRIC] if loss.wrong_sentence_share else []
        return [f"eval/{name}" for name in (*CLASSIFIER_METRICS, *refused)]
    if not isinstance(cfg, LanguageConfig):
        return []
    names = list(EXAMPLE_METRICS) if isinstance(cfg, SftConfig) else []
    if cfg.rollout is not None:
        names += _response_metrics(cfg)
    sets = cfg.data.val_names
    prefixes = ["eval", *(f"eval/{name}" for name in sets if len(sets) > 1)]
    return [f"{prefix}/{name}" for prefix in prefixes for name in names]


def has_score(cfg: EnvConfig) -> bool:
    """Return whether episodes of an environment report ``normalized_score``."""
    return cfg.reference_returns is not None or isinstance(cfg, D4RLEnvConfig)


def _response_metrics(cfg: LanguageConfig) -> list[str]:
    size = cfg.runner.val_samples
    if size == 1:
        return list(RESPONSE_METRICS)
    return [*RESPONSE_METRICS, f"avg@{size}", *(f"pass@{k}" for k in sorted({*cfg.runner.val_pass_at} or {1, size}))]
