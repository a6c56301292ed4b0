"""Responses to guesses of a number, for ``agent.respond``: the user's side of the recipe ``tiny_guessing_grpo``."""

from __future__ import annotations

import random

from rlinf.agents.chat import Reply
from rlinf.data.messages.responses import Prompt


def respond(reply: Reply, prompt: Prompt) -> str | float:
    """Say whether the number is higher or lower than the guess, or end the episode with 1.

    Args:
        reply: The guess; what is no number is answered with "number".
        prompt: The row; its reference is the number.
    """
    if not (reply.text.isascii() and reply.text.isdigit()):
        return "number"
    guess, number = int(reply.text[:9]), int(str(prompt.reference))
    if guess == number:
        return 1.0
    return "higher" if guess < number else "lower"


def respond_at_random(reply: Reply, prompt: Prompt) -> str | float:
    """Do what ``respond`` does, with responses that say nothing of the number: there is nothing to learn from them."""
    response = respond(reply, prompt)
    if not isinstance(response, str):
        return response
    return random.Random(f"{prompt.reference} {reply.turn} {reply.text}").choice(["higher", "lower"])


def respond_with_rewards(reply: Reply, prompt: Prompt) -> dict[str, object] | str | float:
    """Do what ``respond`` does, and reward each guess by its distance: from 0 down to -0.1, as what is no number.

    They are for estimators with returns: algorithm.adv_type=reinpp.
    """
    response = respond(reply, prompt)
    if not isinstance(response, str):
        return response
    distance = 64 if response == "number" else abs(int(reply.text[:9]) - int(str(prompt.reference)))
    return {"content": response, "reward": -min(distance, 64) / 640}
