"""Whether a policy's checkpoint says actions in the convention that the recipe gives its environments."""

from __future__ import annotations

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.model import ModelConfig
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.envs.action_conventions import CONVENTIONS, convention_of
from rlinf.errors import ConfigError
from rlinf.models.language.model_path import find_model_folder
from rlinf.models.vla.norm_statistics import Statistics

_UNIT = "rlds"
_RANGES = {True: "0 (closed) or 1 (open)", False: "-1 or 1"}


def check_conventions(cfg: EmbodiedConfig) -> None:
    """Check the environments that the policy acts in; see ``check_convention``.

    Args:
        cfg: The recipe.

    Raises:
        ConfigError: One of them hears another convention than the checkpoint's.
    """
    if not cfg.runner.only_eval:
        check_convention(cfg.actor.model, cfg.env.train, "env.train")
    if cfg.env.eval is not None:
        check_convention(cfg.actor.model, cfg.env.eval, "env.eval")


def check_convention(model: ModelConfig, env: EnvConfig, section: str) -> None:
    """Check that the gripper's number in the statistics of a checkpoint is that of ``action_convention``.

    Otherwise the hand would open where the policy closes it, and nothing would tell but the missing success.

    Args:
        model: The ``actor.model`` section; only published vision-language-action policies have statistics.
        env: The environment's configuration.
        section: ``env.train`` or ``env.eval``, for the message.

    Raises:
        ConfigError: It is another one.
    """
    if not isinstance(model, VLAConfig) or (env.env_type, _UNIT) not in CONVENTIONS:
        return
    statistics = Statistics.of_folder(find_model_folder(model.model_path), model.unnorm_key)
    is_unit = statistics.says_unit_gripper(model.action_dim)
    if is_unit is None or is_unit == convention_of(env).unit_gripper:
        return
    raise ConfigError(
        f"{section}.action_convention: received {env.action_convention}; the actions that '{model.model_path}' has "
        f"learned end with {_RANGES[is_unit]}, and the gripper would do the opposite. Set it to "
        f"{_UNIT if is_unit else 'native'}, or choose another checkpoint or actor.model.unnorm_key."
    )
