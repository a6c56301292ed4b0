"""Optional third-party packages: imported when first needed, with an error that names the command to run."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from rlinf.errors import MissingPackageError

_DATA = "pip install 'rlinf[data]'"
_LIBERO = "bash requirements/install.sh embodied --env libero"
_OFFLINE = "pip install 'rlinf[offline]'"
_REASON = "bash requirements/install.sh reason (or: pip install 'rlinf[reasoning]')"
_AGENTS = "pip install 'rlinf[agents]'"
_ROBOT = "bash requirements/install.sh embodied --env realworld (or: pip install 'rlinf[realworld]')"
_TELEOP = "pip install 'rlinf[teleop]'"
_VIDEO = "pip install 'rlinf[video]'"

INSTALL_COMMANDS: dict[str, str] = {
    "aiohttp": _REASON,
    "anthropic": _AGENTS,
    "bddl": _LIBERO,
    "bm25s": _AGENTS,
    "cv2": _ROBOT,
    "datasets": _REASON,
    "dynamixel_sdk": _TELEOP,
    "gymnasium_robotics": "bash requirements/install.sh embodied --env robotics",
    "h5py": _OFFLINE,
    "hydra_optuna_sweeper": "pip install 'rlinf[optuna]'",
    "hf_libero": _LIBERO,
    "imageio": _VIDEO,
    "imageio_ffmpeg": _VIDEO,
    "libero": _LIBERO,
    "mani_skill": "bash requirements/install.sh embodied --env maniskill",
    "math_verify": _REASON,
    "mcp": _AGENTS,
    "megatron": "bash requirements/install.sh reason --backend megatron (or: pip install 'rlinf[megatron]')",
    "megatron_core": "bash requirements/install.sh reason --backend megatron (or: pip install 'rlinf[megatron]')",
    "metaworld": "bash requirements/install.sh embodied --env metaworld",
    "mujoco": "bash requirements/install.sh embodied --env frankasim",
    "onnx": "pip install 'rlinf[onnx]'",
    "onnxscript": "pip install 'rlinf[onnx]'",
    "openai": _AGENTS,
    "opencv_python_headless": _ROBOT,
    "peft": _REASON,
    "PIL": _DATA,
    "pillow": _DATA,
    "plotly": "pip install 'rlinf[report]'",
    "py_spy": "pip install 'rlinf[debug]'",
    "pyarrow": _DATA,
    "pygame": _VIDEO,
    "pynput": _TELEOP,
    "pyrealsense2": _ROBOT,
    "pyspacemouse": _TELEOP,
    "robosuite": "bash requirements/install.sh embodied --env robosuite",
    "sapien": "bash requirements/install.sh embodied --env maniskill",
    "sglang": "bash requirements/install.sh reason --engine sglang",
    "swanlab": "pip install 'rlinf[swanlab]'",
    "tokenizers": _REASON,
    "transformers": _REASON,
    "uvloop": _REASON,
    "vllm": "bash requirements/install.sh reason --engine vllm",
    "wandb": "pip install 'rlinf[wandb]'",
}
"""What installs a package in the version that the project pins, by the name that is imported, or of its project."""


def install_command(module: str) -> str:
    """Return the command that installs a package, or the one that a submodule belongs to."""
    package = module.partition(".")[0]
    return INSTALL_COMMANDS.get(package, f"pip install {package}")


def missing_package(package: str, *, needed_by: str, install: str | None = None) -> MissingPackageError:
    """Return the error that says that a package is not installed for this interpreter.

    Args:
        package: Name to import.
        needed_by: The key or the feature that needs it, for the message, for example ``"env_type=metaworld"``.
        install: The command that installs it; None takes ``install_command``.
    """
    return MissingPackageError(
        f"{needed_by} needs the package '{package}', which is not installed for {sys.executable}. Install it with: "
        f"{install or install_command(package)}"
    )


def is_installed(package: str) -> bool:
    """Return whether a package can be found; nothing of it is imported."""
    return importlib.util.find_spec(package) is not None


def require(module: str, *, needed_by: str, install: str | None = None) -> ModuleType:
    """Import an optional package.

    Args:
        module: Name to import, for example ``"metaworld"``.
        needed_by: What needs it, for the message, for example ``"env_type=metaworld"``.
        install: The command that installs it; None takes ``install_command``.

    Returns:
        The imported module.

    Raises:
        MissingPackageError: The package, or one that it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        install = install or install_command(module)
        raise missing_package(str(error.name), needed_by=needed_by, install=install) from error
