"""What ``RLINF_EXT_MODULE=plugin`` loads, in the driver and in every worker."""

from rlinf.algorithms.registry import register_advantage, register_policy_loss
from rlinf.algorithms.rewards import register_reward
from rlinf.config.registries import generation_engines
from rlinf.envs import register_env
from rlinf.models import register_model


def register() -> None:
    """Give everything the name that recipes use."""
    from algorithms import CenteredConfig, RatioPenaltyConfig, compute_centered_advantages, ratio_penalty_loss
    from effort_reward import EffortReward, EffortRewardConfig
    from linear_policy import LinearPolicy, LinearPolicyConfig
    from point_env import PointEnv
    from watched_engine import WatchedEngine, WatchedEngineConfig

    register_env("point", PointEnv)
    register_model("linear_policy", LinearPolicy, config=LinearPolicyConfig)
    register_advantage("centered", config=CenteredConfig)(compute_centered_advantages)
    register_policy_loss("ratio_penalty", config=RatioPenaltyConfig)(ratio_penalty_loss)
    register_reward("effort", EffortReward, config=EffortRewardConfig)
    generation_engines.register("watched", WatchedEngine, config=WatchedEngineConfig)
