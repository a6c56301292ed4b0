"""Published questions about kinds of accelerators; the answers are those of ``rlinf.placement.accelerator_kinds``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.errors import ConfigError
from rlinf.placement.accelerator_kinds import ACCELERATOR_KINDS, AcceleratorKind, kind_of
from rlinf.placement.records import AcceleratorType
from rlinf.scheduler.accelerators import find_accelerators

_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


class AcceleratorUtil:
    """What code that runs on several kinds of accelerators has to know of each."""

    @staticmethod
    def get_accelerator_type() -> AcceleratorType:
        """Return the kind of this machine's accelerators that this process may use; ``NO_ACCEL`` for none."""
        return find_accelerators(os.environ).type

    @staticmethod
    def get_accelerator_env_var(
        accelerator_type: AcceleratorType, visible_accelerators: Sequence[str]
    ) -> Mapping[str, str]:
        """Return the variables that let a process see some devices alone; none for ``NO_ACCEL``."""
        kind = kind_of(accelerator_type)
        return dict.fromkeys(kind.visible_variables if kind else (), ",".join(visible_accelerators))

    @staticmethod
    def get_visible_devices(accelerator_type: AcceleratorType) -> list[int]:
        """Return the indices that this process's variable names; empty where it is not set, or names UUIDs."""
        kind = kind_of(accelerator_type)
        value = next((os.environ[name] for name in kind.visible_variables if name in os.environ), "") if kind else ""
        ids = [entry.strip() for entry in value.split(",")]
        return [int(entry) for entry in ids] if all(entry.isdigit() for entry in ids) else []

    @staticmethod
    def get_ccl_backend(accelerator_type: AcceleratorType) -> str | None:
        """Return the backend of ``torch.distributed``; None for ``NO_ACCEL``.

        Raises:
            ConfigError: There is no such kind.
        """
        kind = _row(accelerator_type)
        return None if kind is None else kind.collective_backend

    @staticmethod
    def get_ccl_socket_ifname_env_var(accelerator_type: AcceleratorType) -> str:
        """Return the variable that names the network interface of collectives.

        Raises:
            ConfigError: There is no such kind.
        """
        kind = _row(accelerator_type)
        return _GLOO_INTERFACE if kind is None else kind.interface_variable

    @staticmethod
    def get_torch_platform(accelerator_type: AcceleratorType) -> Any:
        """Return torch's module for a kind (``torch.cuda``, ...), or None for ``NO_ACCEL``.

        Raises:
            ConfigError: There is no such kind.
        """
        import torch

        kind = _row(accelerator_type)
        return None if kind is None else getattr(torch, kind.torch_device)

    @staticmethod
    def get_device_type(accelerator_type: AcceleratorType) -> str | None:
        """Return torch's name for a kind (``cuda``, ...), or None for ``NO_ACCEL``.

        Raises:
            ConfigError: There is no such kind.
        """
        kind = _row(accelerator_type)
        return None if kind is None else kind.torch_device


def _row(accelerator_type: AcceleratorType) -> AcceleratorKind | None:
    kind = kind_of(accelerator_type)
    if kind is None and accelerator_type != AcceleratorType.NO_ACCEL:
        known = ", ".join(str(row.type) for row in ACCELERATOR_KINDS)
        raise ConfigError(f"Unknown type of accelerator '{accelerator_type}'. Use one of {known}, NO_ACCEL.")
    return kind
