"""The experts of Meta-World's tasks, which collect demonstrations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.simulators.metaworld_tasks import TASK_DESCRIPTIONS
from rlinf.utils.optional import require


class MetaWorldExpert:
    """The hand-written policy of each of Meta-World's tasks, chosen by the task in words.

    Args:
        env: The environment's configuration; all tasks are known.
    """

    def __init__(self, env: EnvConfig) -> None:
        del env
        policies = require(
            "metaworld.policies",
            needed_by="data_collection.policy=metaworld",
        )
        self._classes = policies.ENV_POLICY_MAP
        self._names = {description: name for name, description in TASK_DESCRIPTIONS.items()}
        self._policies: dict[str, Any] = {}

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act for ``states`` [B, 39] and ``task_descriptions``."""
        states = obs["states"].double().cpu().numpy()
        actions = [
            self._policy(task).get_action(row) for task, row in zip(obs["task_descriptions"], states, strict=True)
        ]
        return torch.from_numpy(np.clip(np.stack(actions), -1, 1).astype(np.float32)).unsqueeze(1)

    def _policy(self, description: str) -> Any:
        name = self._names[description]
        if name not in self._policies:
            self._policies[name] = self._classes[name]()
        return self._policies[name]
