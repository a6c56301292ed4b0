"""The intervener ``scripted``: a program that takes over as a person would, and hands back as hesitantly."""

from __future__ import annotations

import math

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import ScriptedIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.scripted import draw, make_scripted_policy


class ScriptedIntervener:
    """Takes over by chance, where the policy is far off, or where the episode makes no progress.

    Chance depends on the observation and the step alone, so that neither a restart nor another number of workers
    changes what is done.

    Args:
        cfg: Its keys.
        env: The environment's configuration.
        row: Which of the environments of its worker it watches.
    """

    state_names = ("best", "stalled", "remaining", "is_acting")

    def __init__(self, cfg: ScriptedIntervenerConfig, *, env: EnvConfig, row: int) -> None:
        del row
        self.cfg = cfg
        self.seed = env.seed
        self.policy = make_scripted_policy(cfg.policy, env)
        self.begin()

    def begin(self) -> None:
        """See ``Intervener``."""
        self.best = -math.inf
        self.stalled = 0
        self.remaining = 0
        self.is_acting = False

    def act(self, situation: Situation) -> torch.Tensor | None:
        """See ``Intervener``."""
        self._watch(situation)
        action = self.policy(situation.obs)[0, 0]
        distance = float((action - situation.action).square().mean().sqrt())
        if self.remaining == 0 and not self._stays(distance):
            self.is_acting = self._takes_over(situation, distance)
            self.remaining = self.cfg.hold_steps if self.is_acting else 0
        if not self.is_acting:
            return None
        self.remaining = max(self.remaining - 1, 0)
        self.stalled = 0
        return action

    def close(self) -> None:
        """See ``Intervener``: nothing is held."""

    def _watch(self, situation: Situation) -> None:
        """Count the steps since the episode's best reward rose."""
        if situation.step == 0:
            return
        self.stalled = 0 if situation.reward > self.best + self.cfg.min_progress else self.stalled + 1
        self.best = max(self.best, situation.reward)

    def _stays(self, distance: float) -> bool:
        limit = self.cfg.takeover_distance
        return self.is_acting and limit is not None and distance > self.cfg.release_share * limit

    def _takes_over(self, situation: Situation, distance: float) -> bool:
        cfg = self.cfg
        is_far = cfg.takeover_distance is not None and distance > cfg.takeover_distance
        is_stalled = cfg.stall_steps is not None and self.stalled >= cfg.stall_steps
        return is_far or is_stalled or self._draw(situation) < cfg.takeover_probability

    def _draw(self, situation: Situation) -> float:
        if self.cfg.takeover_probability == 0:
            return 1.0
        return draw(situation.obs, self.seed, situation.step)
