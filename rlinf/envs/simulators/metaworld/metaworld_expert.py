"""The experts of Meta-World's tasks, which collect demonstrations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlinf.config.schema.env import EnvConfig, MetaWorldEnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.simulators.metaworld.metaworld_tasks import TASK_DESCRIPTIONS
from rlinf.errors import ConfigError
from rlinf.utils.optional import require


class MetaWorldExpert:
    """The hand-written policy of each of Meta-World's tasks, chosen by the task in words.

    Args:
        env: The environment's configuration; all tasks are known.

    Raises:
        ConfigError: The environment shows images and not where the objects are, or says two tasks alike.
    """

    def __init__(self, env: EnvConfig) -> None:
        if isinstance(env, MetaWorldEnvConfig) and env.image_size and not env.show_objects:
            raise ConfigError(
                f"the scripted policy metaworld reads where the objects are, which image_size={env.image_size} hides. "
                "Set show_objects: true in the environment that it acts in."
            )
        if isinstance(env, MetaWorldEnvConfig) and env.task_sentences == "paper":
            raise ConfigError(
                "the scripted policy metaworld knows tasks by their sentences, and task_sentences=paper says two of "
                "them alike. Set task_sentences: own in the environment that it acts in."
            )
        policies = require(
            "metaworld.policies",
            needed_by="data_collection.policy=metaworld",
        )
        self._classes = policies.ENV_POLICY_MAP
        self._names = {description: name for name, description in TASK_DESCRIPTIONS.items()}
        self._policies: dict[str, Any] = {}

    def __call__(self, obs: Observation) -> torch.Tensor:
        """Act for ``task_descriptions`` and the whole state [B, 39]: ``objects``, else ``states``."""
        states = obs["objects" if "objects" in obs else "states"].double().cpu().numpy()
        actions = [
            self._policy(task).get_action(row) for task, row in zip(obs["task_descriptions"], states, strict=True)
        ]
        return torch.from_numpy(np.clip(np.stack(actions), -1, 1).astype(np.float32)).unsqueeze(1)

    def _policy(self, description: str) -> Any:
        name = self._names[description]
        if name not in self._policies:
            self._policies[name] = self._classes[name]()
        return self._policies[name]
