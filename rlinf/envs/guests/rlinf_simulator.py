"""Adapter for the simulators of ``rlinf.envs.simulators``, in the interpreter that has the simulator.

A recipe does not name it: ``guest`` in a section with ``env_type: libero``, say, does. The guest needs Python 3.10, the
simulator, gymnasium and annotated-types. RLinf is the one that this folder lies in, else one that is installed.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .__main__ import load_package
from .adapter_tools import import_simulator, with_options
from .rows import Singles

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    import numpy as np

    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]

PACKAGES = ("gymnasium",)
_OLDEST = (3, 10)
_INSTALL = "install gymnasium and annotated-types there"


@with_options
def make_batch(
    *, num_envs: int, first_env: int, render: bool, group_size: int, max_episode_steps: int, section: dict[str, Any]
) -> SimulatorRows:
    """Build the environments of a section.

    Args:
        num_envs: ``B``.
        first_env: Index of the first of them among all of the recipe.
        render: Whether videos are wanted.
        group_size: Of the host; the section has it as well.
        max_episode_steps: Of the host; the section has it as well.
        section: Its keys, but for those that are the host's alone.

    Raises:
        RuntimeError: The interpreter is too old.
    """
    del group_size, max_episode_steps
    if sys.version_info < _OLDEST:
        raise RuntimeError(
            f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}; env_type={section['env_type']} "
            f"needs {_OLDEST[0]}.{_OLDEST[1]} or newer in its guest"
        )
    _find_rlinf(Path(__file__).resolve().parents[2])
    schema = import_simulator("rlinf.config.schema.env", _INSTALL)
    cfg = schema.envs.configs.get(section["env_type"])(**section)
    spec = import_simulator("rlinf.registry", _INSTALL).import_target(cfg.single_envs)(
        cfg, num_envs=num_envs, first_env=first_env
    )
    return SimulatorRows(cfg, spec, render=render)


class SimulatorRows(Singles):
    """The environments of a section, as ``rlinf.envs.guests.rows`` drives them.

    Args:
        cfg: The section.
        spec: Its ``SingleEnvSpec``.
        render: Whether videos are wanted.
    """

    def __init__(self, cfg: Any, spec: Any, *, render: bool) -> None:
        self._cfg = cfg
        own = iter(spec.row_kwargs or [{}] * spec.num_envs)
        super().__init__(
            lambda render: SimulatorRow(spec.factory(render=render, **spec.kwargs, **next(own))),
            num_envs=spec.num_envs,
            first_env=spec.first_env,
            num_recorded=spec.num_envs if render else 0,
            init_params={},
        )

    def versions(self) -> dict[str, str]:
        """Return what results depend on besides the section, as this interpreter has it."""
        found: dict[str, str] = import_simulator("rlinf.envs.versions", _INSTALL).simulator_versions(self._cfg)
        return found


class SimulatorRow:
    """One ``SingleEnv``, as ``rlinf.envs.guests.rows`` drives it.

    Args:
        env: The environment.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self.action_low, self.action_high = env.action_space.low, env.action_space.high

    def reset(self, seed: int) -> Row:
        """Start an episode."""
        row: Row = self._env.observe(self._env.reset(seed))
        return row

    def step(self, action: Array) -> tuple[Any, float, bool, bool, bool | None]:
        """Execute one action; the row is observed only where it is looked at."""
        raw, reward, terminated, truncated, success = self._env.step(action)
        return functools.partial(self._env.observe, raw), reward, terminated, truncated, success

    def render(self) -> Array | None:
        """Return the present image."""
        frame: Array | None = self._env.render()
        return frame

    def close(self) -> None:
        """Free the simulator."""
        self._env.close()


def _find_rlinf(folder: Path) -> None:
    """Take RLinf from a folder, and none of the packages beside it, which are the host's."""
    if "rlinf" in sys.modules or folder.name != "rlinf" or not (folder / "registry.py").is_file():
        return
    load_package(folder, "rlinf")
