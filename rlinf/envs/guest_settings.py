"""What ``env.*.guest`` says, checked: the interpreter, or where guests listen and the key; loads no torch."""

from __future__ import annotations

import os
import shutil

from rlinf.config.schema.env import EnvConfig, GuestConfig, GuestProcessConfig, SimulatorConfig
from rlinf.envs.guest_process import GuestSetup
from rlinf.envs.guests.guest_tcp import parse_address, read_key
from rlinf.errors import ConfigError

PYTHON_VARIABLE = "RLINF_GUEST_PYTHON"
"""Names the interpreter of guests whose recipe names none."""


def guest_setup(cfg: GuestConfig, adapter: str) -> GuestSetup:
    """Return how to start guests, or to reach them.

    Args:
        cfg: ``env.*.guest``.
        adapter: Module that drives the simulator.

    Raises:
        ConfigError: There is no interpreter, or no such address, or no key.
    """
    if cfg.address is None:
        if cfg.key_file is not None:
            raise ConfigError(
                "env.*.guest.key_file: a guest that is started here needs no key. Set env.*.guest.address to where "
                "guests listen, or remove the key."
            )
        return GuestSetup(
            adapter=adapter,
            python=find_python(cfg),
            env_vars=cfg.env_vars,
            startup_timeout_seconds=cfg.startup_timeout_seconds,
        )
    for name, value in (("python", cfg.python), ("env_vars", cfg.env_vars)):
        if value:
            raise ConfigError(
                f"env.*.guest.{name}: has no effect on guests at {cfg.address}, which were started there. Remove it, "
                "and start them there as it says."
            )
    try:
        address = parse_address(cfg.address)
    except ValueError as error:
        raise ConfigError(f"env.*.guest.address: {error}") from error
    try:
        key = read_key(cfg.key_file)
    except ValueError as error:
        raise ConfigError(f"env.*.guest.key_file: {error}") from error
    return GuestSetup(adapter=adapter, address=address, key=key, startup_timeout_seconds=cfg.startup_timeout_seconds)


def find_python(cfg: GuestConfig) -> str:
    """Return the interpreter of guests that are started here.

    Raises:
        ConfigError: None is named, or the named one is not there.
    """
    named = cfg.python or os.environ.get(PYTHON_VARIABLE)
    found = shutil.which(named) if named else None
    if found is None:
        received = f"'{named}', which is no executable file" if named else f"null, and {PYTHON_VARIABLE} is not set"
        raise ConfigError(
            f"env.*.guest.python: received {received}. Give the Python of the environment in which the simulator is "
            "installed, for example /opt/robotwin/bin/python."
        )
    return found


def check_guest_config(cfg: EnvConfig) -> None:
    """Check ``env.*.guest`` of a section; see ``EnvConfig.readiness_check``.

    Raises:
        ConfigError: As ``guest_setup``.
    """
    assert isinstance(cfg, GuestProcessConfig | SimulatorConfig)
    if cfg.guest is not None:
        guest_setup(cfg.guest, adapter="")
