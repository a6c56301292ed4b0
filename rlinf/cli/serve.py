"""``rlinf serve``: serve a recipe's generation engine over HTTP, to runs with ``rollout_backend: server``."""

from __future__ import annotations

import argparse
import ipaddress
import os

from rlinf.cli.arguments import add_config_dir, add_overrides, find_config_dir
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import LanguageConfig
from rlinf.errors import ConfigError

_TOKEN_VARIABLE = "RLINF_SERVER_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf serve``."""
    parser.add_argument("recipe", help="name of a recipe, or the path of one, whose rollout section says which engine")
    add_overrides(parser)
    add_config_dir(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 chooses a free one")
    parser.add_argument("--device", help="torch device (default: cuda where there is one, else cpu)")
    parser.add_argument("--rank", type=int, default=0, help="number of this server, where there are several")


def run(args: argparse.Namespace) -> int:
    """Serve until the process is interrupted.

    With ``rollout.rollout_backend=server`` in the recipe this is a router: a server of the servers named there.

    Returns:
        0.

    Raises:
        ConfigError: The recipe describes no generation engine, or anybody could reach the server.
        EngineError: The engine cannot start.
    """
    cfg = validate_cfg(load_recipe(args.recipe, args.overrides, find_config_dir(args.config_dir)))
    if not isinstance(cfg, LanguageConfig) or cfg.rollout is None:
        raise ConfigError(f"{args.recipe} has no generation engine to serve: runner.task_type={cfg.runner.task_type}.")
    token = os.environ.get(_TOKEN_VARIABLE, "")
    if not token and not _is_loopback(args.host):
        raise ConfigError(
            f"--host {args.host} lets other machines replace the weights of this server: set {_TOKEN_VARIABLE} to a "
            "secret, here and for the runs that use the server."
        )
    import torch

    from rlinf.hybrid_engines.serving.recipe_server import serve_recipe

    name = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    serve_recipe(cfg, host=args.host, port=args.port, device=torch.device(name), rank=args.rank, token=token)
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
