"""Former home of the messages of language-model RL; they are in ``rlinf.data.messages.responses``."""

from rlinf.data.messages.responses import Prompt, RewardQuery

__all__ = ["Prompt", "RewardQuery"]
