"""Workers that reward what policies do, and the rewards that need a model or the network.

Imports what ``rlinf.workers`` may. A reward is one file here, derived from ``EmbodiedReward`` or ``TextReward``, with
its dataclass in ``rlinf.config.schema.reward`` or ``text_reward`` and a line below; one that is a mere rule goes to
``rlinf.algorithms.rewards``.
"""

from __future__ import annotations

from rlinf.algorithms.rewards import rewards

rewards.register_lazy("api", "rlinf.workers.reward.api_reward:ApiReward")
rewards.register_lazy("code", "rlinf.workers.reward.code_reward:CodeReward")
rewards.register_lazy("function", "rlinf.workers.reward.function_reward:FunctionReward")
rewards.register_lazy("math", "rlinf.workers.reward.math_reward:MathReward")
rewards.register_lazy("model", "rlinf.workers.reward.model_reward:ModelReward")
rewards.register_lazy("text_api", "rlinf.workers.reward.text_api_reward:TextApiReward")
rewards.register_lazy("text_model", "rlinf.workers.reward.text_model_reward:TextModelReward")
