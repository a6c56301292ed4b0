"""What adapters share: options that are checked, packages that may be missing, tensors and images as arrays."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

_HOST_SAYS = ("render", "num_envs", "first_env", "group_size", "max_episode_steps")
"""Arguments of ``make`` and ``make_batch`` that are no ``init_params``."""


def with_options(make: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``make`` or ``make_batch``: ``init_params`` that it does not have, or that it misses, are named.

    Args:
        make: Its arguments are keywords; those without a default are required.
    """
    arguments = inspect.signature(make).parameters
    options = [name for name in arguments if name not in _HOST_SAYS]
    required = [name for name in options if arguments[name].default is inspect.Parameter.empty]

    @functools.wraps(make)
    def checked(**given: Any) -> Any:
        unknown = sorted(name for name in given if name not in arguments)
        missing = [name for name in required if name not in given]
        if unknown or missing:
            found = [f"has no {name}" for name in unknown] + [f"requires {name}" for name in missing]
            adapter = make.__module__.split(".")[-1]
            raise ValueError(f"init_params: adapter {adapter} {' and '.join(found)}; it takes {', '.join(options)}")
        return make(**given)

    return checked


def import_simulator(name: str, install: str) -> Any:
    """Import a module of a simulator.

    Args:
        name: The module.
        install: How to install what has it.

    Raises:
        ImportError: It cannot be imported; the message says what to install, and for which interpreter.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"'{name}' cannot be imported by {sys.executable} ({error}); {install}") from error


def as_array(value: Any) -> Array:
    """Return a copy of a tensor on any device, or of what numpy takes, as an array.

    Simulators fill their buffers again in the next step, so that what was returned must not change with them.
    """
    return np.array(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def as_image(value: Any, *, upside_down: bool = False) -> Array:
    """Return an image uint8 [..., H, W, 3].

    Args:
        value: uint8 [..., H, W, 3 or 4]; a fourth channel is dropped.
        upside_down: Whether its first row is the lowest.

    Raises:
        ValueError: It is no such image.
    """
    image = as_array(value)
    if image.dtype != np.uint8 or image.ndim < 3 or image.shape[-1] not in (3, 4):
        raise ValueError(f"an image has to be uint8 [H, W, 3]; received {image.dtype} {list(image.shape)}")
    image = image[..., :3]
    return np.ascontiguousarray(image[..., ::-1, :, :] if upside_down else image)


def pick(found: Any, name: str, what: str) -> Any:
    """Return an entry of a mapping.

    Args:
        found: The mapping.
        name: Its key.
        what: What its entries are, and the option that chooses one.

    Raises:
        ValueError: There is none; the message lists those that are.
    """
    if name not in found:
        raise ValueError(f"{what}: there is no '{name}'; there are {', '.join(map(str, found))}")
    return found[name]
