"""Language models: who can use them, and keys of theirs that have no effect."""

from __future__ import annotations

from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.algorithm import TextAlgorithmConfig
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.unused import note_unused


def check_language_model(cfg: RLinfConfig, world: WorldSizes, problems: Problems) -> None:
    """Environments need a policy that acts, and adapters are there or not."""
    del world
    model, task_type = cfg.actor.model, cfg.runner.task_type
    if not isinstance(model, CausalLMConfig):
        return
    if task_type in {"embodied", "offline"}:
        problems.add(
            "actor.model.model_type",
            f"received {model.model_type}, which writes text; runner.task_type={task_type} needs a policy that acts. "
            "Set actor.model.model_type=mlp_policy, say.",
        )
    if not model.is_lora:
        names = ("lora_rank", "lora_alpha", "lora_target_modules")
        note_unused(problems, model, names, "actor.model", "without actor.model.is_lora")


def check_importance_correction(cfg: RLinfConfig, world: WorldSizes, problems: Problems) -> None:
    """A correction compares two probabilities of a token, and leaves alone what is equal."""
    del world
    algorithm = cfg.algorithm
    if not isinstance(algorithm, TextAlgorithmConfig):
        return
    correction, path = algorithm.importance_correction, "algorithm.importance_correction"
    for needs_it, key in (
        (correction is not None, path),
        (algorithm.loss.needs_proximal_logprobs, f"algorithm.loss_type={algorithm.loss_type}"),
    ):
        if needs_it and not algorithm.recompute_logprobs:
            problems.add(
                "algorithm.recompute_logprobs",
                f"received False; {key} needs the trainer's log-probabilities. Set algorithm.recompute_logprobs=true.",
            )
    if correction is None:
        return
    if algorithm.loss.needs_proximal_logprobs:
        problems.add(
            path, f"loss_type={algorithm.loss_type} weighs samples by itself (behave_weight_threshold). Remove it."
        )
    if not correction.lower_bound <= 1 <= correction.upper_bound:
        problems.add(
            path,
            f"received bounds {correction.lower_bound} and {correction.upper_bound}; equal probabilities have weight "
            "1, which must lie between them. Set lower_bound=0.5 and upper_bound=2.0, say.",
        )


RULES = (check_language_model, check_importance_correction)
