"""Where episodes are collected, and what means nothing where they are not."""

from __future__ import annotations

from rlinf.config.checks.recipe_check import Check
from rlinf.config.schema.env import MODEL_POLICIES, DataCollectionConfig, NoEnvConfig
from rlinf.config.schema.intervention import InterventionConfig
from rlinf.config.schema.model import NoModelConfig
from rlinf.config.schema.realworld import RealWorldEnvConfig, RobotEnvConfig
from rlinf.config.schema.root import CollectConfig, EmbodiedConfig

_KEYS = tuple(name for name in DataCollectionConfig.__dataclass_fields__ if name != "enabled")


def check_collection(check: Check[EmbodiedConfig]) -> None:
    """Episodes are collected in training, or while a run does nothing but evaluate."""
    cfg = check.cfg
    _check_training(cfg.env.train.data_collection, check)
    if cfg.env.eval is None:
        return
    collection, path = cfg.env.eval.data_collection, "env.eval.data_collection"
    if not collection.enabled:
        check.unused(collection, _KEYS, path, "without enabled")
        return
    if not cfg.runner.only_eval:
        check.problem(
            f"{path}.enabled",
            "received True; evaluations while training play the same episodes every time. Collect those of training by "
            "env.train.data_collection, or set runner.only_eval=true, as examples/embodiment/collect_data.sh does.",
        )
    acts = any(isinstance(wrapper, InterventionConfig) for wrapper in cfg.env.eval.wrappers)
    if collection.policy == "operator" and not acts:
        check.problem(
            f"{path}.policy",
            "received 'operator', and there is none. Add the wrapper 'intervention' as the last entry of "
            "env.eval.wrappers, with intervener_type: spacemouse, say.",
        )
    if collection.policy == "operator" and not isinstance(cfg.env.eval, RealWorldEnvConfig | RobotEnvConfig):
        check.problem(
            f"{path}.policy",
            f"received 'operator'; how to rest while the operator does not act is known of robots alone, and env_type "
            f"is {cfg.env.eval.env_type}. Choose env_type=realworld or robot, or a policy that acts next to the "
            "operator: greedy, or a script.",
        )


def _check_training(collection: DataCollectionConfig, check: Check[EmbodiedConfig]) -> None:
    path = "env.train.data_collection"
    if not collection.enabled:
        check.unused(collection, _KEYS, path, "without enabled")
        return
    check.unused(collection, ("policy",), path, "in training, where the policy that learns acts")
    if check.cfg.runner.only_eval:
        check.problem(
            f"{path}.enabled",
            "received True; runner.only_eval=true plays env.eval alone. Move it to env.eval.data_collection.",
        )


def check_task(check: Check[CollectConfig]) -> None:
    """A recipe that only collects plays ``env.eval`` by a script, and has no part that learns."""
    cfg = check.cfg
    if cfg.env.eval is None:
        check.problem("env.eval", "missing; task_type=collect plays its episodes. Add the section.")
    elif not cfg.env.eval.data_collection.enabled or not cfg.runner.only_eval:
        check.problem(
            "env.eval.data_collection.enabled",
            "received False, or runner.only_eval=false; task_type=collect does nothing else. Run the recipe by "
            "examples/embodiment/collect_data.sh, which sets both.",
        )
    elif cfg.env.eval.data_collection.policy in MODEL_POLICIES:
        check.problem(
            "env.eval.data_collection.policy",
            f"received '{cfg.env.eval.data_collection.policy}'; task_type=collect has no model. Set it to operator, or "
            "to a script, metaworld say.",
        )
    if not isinstance(cfg.actor.model, NoModelConfig):
        check.problem("actor.model", "not used by task_type=collect, which has no model. Remove the section.")
    if cfg.env.train != NoEnvConfig():
        check.problem("env.train", "not used by task_type=collect, which learns nothing. Remove it.")
    if cfg.data is not None:
        check.problem("data", "not used by task_type=collect, which learns nothing. Remove the section.")
    check.unused(
        cfg.runner, ("enable_decoupled_mode", "ckpt_path", "eval_initial_policy"), "runner", "by task_type=collect"
    )


def check_model(check: Check[EmbodiedConfig]) -> None:
    """All other recipes have something that learns."""
    if isinstance(check.cfg.actor.model, NoModelConfig) and not isinstance(check.cfg, CollectConfig):
        check.problem(
            "actor.model.model_type",
            f"received none; task_type={check.cfg.runner.task_type} runs a model. Choose one, mlp_policy say, or "
            "runner.task_type=collect.",
        )


RULES = (check_collection, check_model)
COLLECT_RULES = (check_task,)
