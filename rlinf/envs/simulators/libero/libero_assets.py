"""Where LIBERO's files are: its package, and its assets, which the package does not bring; imports no torch itself."""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rlinf.config.schema.env import LiberoEnvConfig
from rlinf.envs.versions import hash_files
from rlinf.errors import ConfigError
from rlinf.utils.optional import require

ASSETS_VARIABLE = "RLINF_LIBERO_ASSETS"
"""Names LIBERO's folder ``assets``."""
INSTALLED_ASSETS = Path(sys.prefix) / "share" / "libero" / "assets"
"""Where ``requirements/install.sh embodied --env libero`` puts it."""
_STANDINS = "STANDINS.txt"
"""A file of the assets that lists meshes and textures which are not LIBERO's own."""
_NEEDED_BY = "env_type=libero"


def find_assets(assets_path: str | None) -> Path:
    """Return LIBERO's folder of scenes, objects and textures.

    Args:
        assets_path: What the recipe names.

    Raises:
        ConfigError: It holds no scenes.
    """
    named = assets_path or os.environ.get(ASSETS_VARIABLE)
    assets = Path(named).expanduser().absolute() if named else INSTALLED_ASSETS
    if not (assets / "scenes").is_dir():
        raise ConfigError(
            f"env.*.assets_path: '{assets}' holds no scenes of LIBERO. Run: bash requirements/install.sh embodied "
            "--env libero. Without a network, copy the folder libero/libero/assets of "
            f"https://github.com/Lifelong-Robot-Learning/LIBERO, and name it here or in {ASSETS_VARIABLE}."
        )
    return assets


def load_suite(name: str, assets: Path) -> Any:
    """Import LIBERO and return one of its suites (``libero.libero.benchmark.Benchmark``).

    Raises:
        MissingPackageError: LIBERO, or what it needs, is not installed.
    """
    for package in ("robosuite", "bddl"):
        require(package, needed_by=_NEEDED_BY)
    if importlib.util.find_spec("libero") is not None and "libero.libero" not in sys.modules:
        _write_paths(assets)
    libero: Any = require("libero.libero", needed_by=_NEEDED_BY)
    libero._assets_path_cache = str(assets)
    benchmark: Any = require("libero.libero.benchmark", needed_by=_NEEDED_BY)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the order of its tasks
        return benchmark.get_benchmark(name)()


def libero_versions(assets_path: str | None) -> dict[str, str]:
    """Return what results depend on: versions of the simulator, whose assets they are, and a hash of these files.

    Raises:
        ConfigError: The assets are not there.
    """
    packages = ("mujoco", "robosuite", "bddl", "hf-libero")
    versions = {package: importlib.metadata.version(package) for package in packages}
    assets = find_assets(assets_path)
    standins = assets / _STANDINS
    own = "published"
    if standins.is_file():
        own = f"stand-ins ({sum(bool(line.strip()) for line in standins.read_text(encoding='utf-8').splitlines())})"
    content = hash_files((file for file in assets.rglob("*") if file.is_file()), assets)
    return {**versions, "assets": own, "assets_sha256": content}


def section_versions(cfg: LiberoEnvConfig) -> dict[str, str]:
    """See ``libero_versions`` and ``SimulatorConfig.own_versions``."""
    return libero_versions(cfg.assets_path)


def _write_paths(assets: Path) -> None:
    """Write where LIBERO's files are: without this it asks on standard input when it is imported."""
    spec = importlib.util.find_spec("libero")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(next(iter(spec.submodule_search_locations))) / "libero"
    paths = {
        "benchmark_root": root,
        "bddl_files": root / "bddl_files",
        "init_states": root / "init_files",
        "datasets": root.parent / "datasets",
        "assets": assets,
    }
    # A folder for each process: others may use other assets at the same time.
    folder = Path(tempfile.mkdtemp(prefix="rlinf-libero-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "config.yaml").write_text(json.dumps({name: str(path) for name, path in paths.items()}), encoding="utf-8")
    os.environ["LIBERO_CONFIG_PATH"] = str(folder)
