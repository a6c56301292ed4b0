"""The wrapper ``intervention``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from rlinf.config.registries import interveners
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import InterventionConfig
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs.interveners import Intervener, Situation
from rlinf.envs.wrappers.base import EnvWrapper
from rlinf.errors import ConfigError, EnvironmentFailure


class Intervention(EnvWrapper):
    """Lets an operator act for the policy, and reports the executed actions: ``intervene_action``, ``intervene_flag``.

    Each environment's intervener is queried before every action, also within a chunk: the rest of a chunk is executed
    as the policy has chosen it, as far as the operator lets it.

    Args:
        cfg: The entry of ``wrappers``.
        env: The environment's configuration.
        num_envs: ``B``.

    Raises:
        ConfigError: The intervener cannot drive these environments.
        MissingPackageError: Its device needs a package that is not installed.
    """

    cfg: InterventionConfig
    state_names = ("shown", "rewards", "steps")
    looks_at_every_action = True

    def __init__(self, cfg: InterventionConfig, *, env: EnvConfig, num_envs: int) -> None:
        super().__init__(cfg, env=env, num_envs=num_envs)
        build = interveners.get(cfg.intervener.intervener_type)
        self.interveners: list[Intervener] = [build(cfg.intervener, env=env, row=row) for row in range(num_envs)]
        self.shown: list[Observation | None] = [None] * num_envs
        self.rewards = [0.0] * num_envs
        self.steps = [0] * num_envs
        self.executed: torch.Tensor | None = None
        self.flags: torch.Tensor = torch.zeros(num_envs, 1, dtype=torch.bool)

    def actions(self, actions: torch.Tensor) -> torch.Tensor:
        """See ``EnvWrapper``.

        Raises:
            ConfigError: Actions are discrete.
            EnvironmentFailure: An intervener's action has another shape.
        """
        if not actions.is_floating_point():
            raise ConfigError(
                f"env.*.wrappers: intervention: env_type={self.env.env_type} has discrete actions, but operators act "
                "by numbers. Remove the wrapper."
            )
        self.executed = actions.clone()
        self.flags = torch.zeros(self.num_envs, 1, dtype=torch.bool)
        for row, shown in enumerate(self.shown):
            if shown is None or (self.resting is not None and self.resting[row]):
                continue  # it rests until the next rollout epoch, or the next chunk
            situation = Situation(shown, actions[row, 0], self.rewards[row], self.steps[row])
            chosen = self.interveners[row].act(situation)
            if chosen is None:
                continue
            if chosen.shape != actions[row, 0].shape:
                raise EnvironmentFailure(
                    f"env.*.wrappers: intervention: {type(self.interveners[row]).__name__} acted by "
                    f"{list(chosen.shape)} numbers; env_type={self.env.env_type} takes {list(actions[row, 0].shape)}."
                )
            self.executed[row, 0] = chosen
            self.flags[row, 0] = True
        return self.executed

    def reset(self, obs: Observation, rows: torch.Tensor) -> Observation:
        """See ``EnvWrapper``."""
        for index, row in enumerate(rows.tolist()):
            self._begin(row, _row(obs, index))
        return obs

    def step_result(self, step: ChunkStep) -> ChunkStep:
        """See ``EnvWrapper``."""
        for row in step.executed[:, 0].nonzero().flatten().tolist():
            self.shown[row] = _row(step.obs, row)
            self.rewards[row] = float(step.rewards[row, 0])
            self.steps[row] += 1
        if step.final_ids is not None:
            self._end(step.obs, step.final_ids)
        return replace(step, intervene_action=self.executed, intervene_flag=self.flags & step.executed)

    def state_dict(self) -> dict[str, Any]:
        """See ``EnvWrapper``: its own state and that of its interveners."""
        return super().state_dict() | {"interveners": [_state_of(intervener) for intervener in self.interveners]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See ``EnvWrapper``."""
        super().load_state_dict(state)
        for intervener, saved in zip(self.interveners, state["interveners"], strict=True):
            vars(intervener).update(copy.deepcopy(saved))

    def close(self) -> None:
        """See ``EnvWrapper``: free the devices."""
        for intervener in self.interveners:
            intervener.close()

    def _end(self, obs: Observation, rows: torch.Tensor) -> None:
        """Begin the next episodes, or rest."""
        for row in rows.tolist():
            self._begin(row, _row(obs, row) if self.env.auto_reset else None)

    def _begin(self, row: int, shown: Observation | None) -> None:
        self.shown[row] = shown
        self.rewards[row], self.steps[row] = 0.0, 0
        self.interveners[row].begin()


def _state_of(intervener: Intervener) -> dict[str, Any]:
    names: tuple[str, ...] = getattr(intervener, "state_names", ())
    return {name: copy.deepcopy(getattr(intervener, name)) for name in names}


def _row(obs: Observation, row: int) -> Observation:
    return {key: value[row : row + 1] for key, value in obs.items()}
