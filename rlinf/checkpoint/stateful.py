"""One registry for everything mutable in a process: what is registered is in the checkpoint, nothing may be missing."""

from __future__ import annotations

import importlib
import io
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rlinf.errors import CheckpointError
from rlinf.utils.files import write_atomic

_FORMAT = 1


@runtime_checkable
class Stateful(Protocol):
    """Something whose state belongs into a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state: tensors, NumPy arrays and plain Python values in any nest of dicts, lists and tuples."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take over a state that ``state_dict`` returned."""


class StatefulRegistry:
    """Names and objects of one process whose states are saved and loaded together, in one file."""

    def __init__(self) -> None:
        self._objects: dict[str, Stateful] = {}

    def register(self, name: str, stateful: Stateful) -> None:
        """Add an object.

        Args:
            name: Its name in the checkpoint; stays the same over versions of a recipe.
            stateful: The object itself; loading changes it in place.

        Raises:
            CheckpointError: The name is taken, or the object lacks ``state_dict`` or ``load_state_dict``.
        """
        if name in self._objects:
            raise CheckpointError(f"state '{name}' is registered twice; give the second object another name")
        if not isinstance(stateful, Stateful):
            raise CheckpointError(
                f"state '{name}' is a {type(stateful).__name__}, which has no state_dict() and load_state_dict()"
            )
        self._objects[name] = stateful

    def names(self) -> list[str]:
        """Return the registered names in the order of registration, which is the order of loading."""
        return list(self._objects)

    def save(self, path: Path) -> None:
        """Write the state of every registered object, atomically.

        Args:
            path: The file to write; its folder must exist.

        Raises:
            CheckpointError: A state holds something that could not be loaded again; the message says where.
        """
        states = {name: stateful.state_dict() for name, stateful in self._objects.items()}
        for name, state in states.items():
            _check_loadable(state, name)
        buffer = io.BytesIO()
        importlib.import_module("torch").save({"format": _FORMAT, "states": states}, buffer)
        write_atomic(Path(path), buffer.getvalue())

    def load(self, path: Path) -> None:
        """Give every registered object its state back. Nothing is changed unless the names agree.

        Args:
            path: A file that ``save`` wrote.

        Raises:
            CheckpointError: The file cannot be read, holds other names than are registered, or an object refuses its
                state; the message says which.
        """
        states = _read(Path(path))
        missing = sorted(self._objects.keys() - states.keys())
        unexpected = sorted(states.keys() - self._objects.keys())
        if missing or unexpected:
            parts = [f"no state for {', '.join(missing)}"] if missing else []
            parts += [f"state for {', '.join(unexpected)}, which this run does not have"] if unexpected else []
            raise CheckpointError(
                f"{path} was saved by another recipe or version: it holds {' and '.join(parts)}. Resume with the "
                "recipe of the saved run (its config.yaml), or start anew from its weights with runner.ckpt_path"
            )
        for name, stateful in self._objects.items():
            try:
                stateful.load_state_dict(states[name])
            except Exception as error:
                raise CheckpointError(f"{path}: state '{name}' does not fit: {error}") from error


def _read(path: Path) -> Mapping[str, Any]:
    torch = importlib.import_module("torch")
    try:
        # weights_only: a checkpoint from somebody else must not be able to run code.
        with torch.serialization.safe_globals(_numpy_globals()):
            record = torch.load(path, map_location="cpu", weights_only=True)
        version, states = record["format"], record["states"]
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; resume from another checkpoint (runner.resume_dir=auto takes the newest "
            "complete one)"
        ) from error
    if version != _FORMAT:
        raise CheckpointError(f"{path} has format {version}; this version of RLinf reads format {_FORMAT}")
    result: Mapping[str, Any] = states
    return result


def _numpy_globals() -> list[Any]:
    """Return what unpickling arrays and NumPy scalars needs; found through NumPy, whose module names have changed."""
    import numpy as np

    dtypes = {type(np.dtype(code)) for code in np.typecodes["All"]}
    names: list[Any] = [np.ndarray, np.dtype, *dtypes]
    names += [np.empty(0).__reduce__()[0], np.float64(0).__reduce__()[0]]
    # Arrays of bytes travel through this function of the standard library.
    names.append(importlib.import_module("_codecs").encode)
    return names


def _check_loadable(value: Any, where: str) -> None:
    """Refuse at saving time what loading would refuse: then it is too late."""
    import numpy as np

    torch = importlib.import_module("torch")
    plain = (str, bytes, int, float, bool, complex, type(None), torch.Tensor, torch.dtype, torch.Size, np.generic)
    if type(value) in {dict, OrderedDict}:
        for key, item in value.items():
            _check_loadable(key, f"{where}: a key")
            _check_loadable(item, f"{where}.{key}")
    elif type(value) in {list, tuple, set}:
        for index, item in enumerate(value):
            _check_loadable(item, f"{where}[{index}]")
    elif isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise CheckpointError(f"state {where} is an array of Python objects; use a list, or an array of numbers")
    elif type(value) not in plain and not isinstance(value, (torch.Tensor, np.generic)):
        raise CheckpointError(
            f"state {where} is a {type(value).__module__}.{type(value).__qualname__}; a state_dict may hold tensors, "
            "NumPy arrays, numbers, strings, and dicts, lists and tuples of them"
        )
