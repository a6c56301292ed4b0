"""The intervener ``client``: the operator's device is one that the robot's own driver reads."""

from __future__ import annotations

import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.intervention import ClientIntervenerConfig
from rlinf.envs.interveners import Situation
from rlinf.envs.interveners.person import require_one_environment
from rlinf.envs.realworld.client import connections
from rlinf.errors import ConfigError


class ClientIntervener:
    """Acts while ``operator_action`` of ``env.*.client`` returns an action: leader arms, a glove, a headset.

    Args:
        cfg: Its keys.
        env: The environment's configuration.
        row: Which of the environments of its worker it drives; only the first can be.

    Raises:
        ConfigError: The worker holds several environments.
    """

    def __init__(self, cfg: ClientIntervenerConfig, *, env: EnvConfig, row: int) -> None:
        require_one_environment(row, cfg.intervener_type)
        self.env = env

    def begin(self) -> None:
        """See ``Intervener``."""

    def act(self, situation: Situation) -> torch.Tensor | None:
        """See ``Intervener``.

        Raises:
            ConfigError: No robot, or several, are driven by this worker, or the driver reads no device.
        """
        clients = connections.clients()
        read = getattr(clients[0], "operator_action", None) if len(clients) == 1 else None
        if read is None:
            raise ConfigError(
                f"env.*.wrappers: intervention: intervener_type=client needs one robot whose env.*.client has "
                f"operator_action(); env_type={self.env.env_type} drives {len(clients)} declared robot(s). Add the "
                "method to the client, or choose another intervener."
            )
        action = read()
        return None if action is None else torch.as_tensor(action, dtype=situation.action.dtype)

    def close(self) -> None:
        """See ``Intervener``: the device is the driver's."""
