"""Whether W&B would ask for a login: in the middle of a start, on a machine without a terminal."""

from __future__ import annotations

import configparser
import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

from rlinf.errors import ConfigError

_HOST = "https://api.wandb.ai"
_LOCAL_MODES = {"offline", "disabled", "dryrun"}


def require_wandb_login() -> None:
    """Look for what W&B itself looks for: a key in the environment, in its settings or in the netrc file.

    Raises:
        ConfigError: There is none, and W&B is to be sent metrics.
    """
    settings = _settings()
    mode = os.environ.get("WANDB_MODE") or settings.get("mode", "")
    if mode.lower() in _LOCAL_MODES or settings.get("api_key"):
        return
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return
    server = os.environ.get("WANDB_BASE_URL") or settings.get("base_url") or _HOST
    host = urlsplit(server).hostname or server
    if not _netrc_has(host):
        raise ConfigError(
            f"runner.logger.logger_backends: received 'wandb', and this machine is not logged in to {host}. Run "
            "`wandb login`, or set WANDB_API_KEY; WANDB_MODE=offline keeps the metrics here; or remove 'wandb'."
        )


def _settings() -> dict[str, str]:
    """Return W&B's settings of this user and of the working directory, the latter first."""
    user = Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    parser = configparser.ConfigParser()
    try:
        parser.read([user / "settings", Path("wandb") / "settings"], encoding="utf-8")
    except configparser.Error:  # W&B reports what is wrong with its file
        return {}
    return dict(parser["default"]) if parser.has_section("default") else {}


def _netrc_has(host: str) -> bool:
    given = os.environ.get("NETRC")
    for path in [Path(given)] if given else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            if netrc.netrc(str(path)).authenticators(host) is not None:
                return True
        except FileNotFoundError:
            continue
        except (OSError, netrc.NetrcParseError):  # W&B reports what is wrong with the file
            return True
    return False
