"""Optional third-party packages: imported when first needed, with an error that names the command to run."""

from __future__ import annotations

import importlib
from types import ModuleType

from rlinf.errors import MissingPackageError


def require(module: str, *, install: str, needed_by: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: Name to import, for example ``"metaworld"``.
        install: The command that installs it, for example ``"pip install 'rlinf[metaworld]'"``.
        needed_by: What asked for it, for the message, for example ``"env_type=metaworld"``.

    Returns:
        The imported module.

    Raises:
        MissingPackageError: The package, or one that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"{needed_by} needs the package '{error.name}', which is not installed. Install it with: {install}"
        ) from error
