"""What results of an environment depend on besides its section: versions of the simulator, and what renders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from rlinf.config.schema.env import EnvConfig, SimulatorConfig
from rlinf.envs.opengl import choose_opengl
from rlinf.registry import import_target

_RENDERED_BY_MUJOCO = frozenset({"mujoco", "robosuite"})


def simulator_versions(cfg: EnvConfig) -> dict[str, str]:
    """Return the versions of the packages that an environment needs, and the OpenGL (``renderer``) of MuJoCo's images.

    Args:
        cfg: Its section.
    """
    packages = ("gymnasium", *cfg.required_packages())
    distributions = metadata.packages_distributions()
    found = {name: metadata.version(name) for package in packages for name in distributions.get(package, ())}
    if isinstance(cfg, SimulatorConfig) and cfg.own_versions is not None:
        found |= import_target(cfg.own_versions)(cfg)
    return found | ({"renderer": choose_opengl()} if _RENDERED_BY_MUJOCO & set(packages) else {})


def hash_files(files: Iterable[Path], root: Path) -> str:
    """Return a hash, 16 hexadecimal digits, of the names below a folder and the contents of files.

    Args:
        files: In any order.
        root: The folder.
    """
    found = hashlib.sha256()
    for file in sorted(files):
        found.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode())
        with open(file, "rb") as stream:
            while block := stream.read(1 << 22):
                found.update(block)
    return found.hexdigest()[:16]
