"""``workflow: multi_turn``: a function of the user's responds to each reply of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from rlinf.agents.chat import Reply
from rlinf.agents.episode_engine import EpisodeEngine
from rlinf.agents.threads import UserFunction
from rlinf.agents.workflow import RolloutWorkflow, WorkflowContext
from rlinf.config.schema.agent import MultiTurnConfig
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from rlinf.utils.user_functions import import_function


class MultiTurnWorkflow(RolloutWorkflow):
    """Plays a conversation with ``respond(reply, prompt)``: a user simulator, an environment in text, "try again".

    The function may be ``async``. It returns the next message of the user, as text or as a mapping; or ends the
    episode, with a number that judges it or None. The entry ``reward`` of a mapping rewards the reply itself, apart
    from the episode.

    Args:
        cfg: The ``agent`` section.
        context: See ``RolloutWorkflow``.

    Raises:
        ConfigError: There is no such function.
    """

    cfg: MultiTurnConfig
    roles: ClassVar[tuple[str, ...]] = ("user",)

    def __init__(self, cfg: MultiTurnConfig, context: WorkflowContext) -> None:
        super().__init__(cfg, context)
        self._respond = UserFunction(import_function(cfg.respond, "agent.respond"))

    async def arun_episode(self, engine: EpisodeEngine, data: Prompt) -> float | None:
        """See ``RolloutWorkflow``."""
        chat = engine.chat()
        while True:
            reply = await chat.reply()
            response = await self._respond(reply, data)
            if response is None or isinstance(response, int | float):
                return None if response is None else float(response)
            message = _message(response, self.cfg.respond)
            reward = message.pop("reward", None)
            if reward is not None:
                engine.reward(_number(reward, self.cfg.respond))
            chat.say(message)


def try_again(reply: Reply, prompt: Prompt) -> str | float:
    """Respond to an answer: end the episode with 1 if it is the reference, else let the model try again.

    Args:
        reply: What the model said.
        prompt: The row.
    """
    return 1.0 if reply.text.strip() == str(prompt.reference).strip() else "Wrong. Try again."


def _message(response: Any, function: str) -> dict[str, Any]:
    if isinstance(response, str):
        return {"role": "user", "content": response}
    if isinstance(response, Mapping) and isinstance(response.get("content"), str):
        return {"role": "user", **response}
    raise AgentError(
        f"agent.respond: {function} returned {type(response).__name__}; expected text or a message, or a number or "
        "None, which end the episode. Correct it."
    )


def _number(reward: Any, function: str) -> float:
    if isinstance(reward, int | float) and math.isfinite(reward):
        return float(reward)
    raise AgentError(f"agent.respond: {function} returned the reward {reward!r}; expected a finite number. Correct it.")
