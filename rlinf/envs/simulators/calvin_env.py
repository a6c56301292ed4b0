"""``env_type: calvin``: CALVIN's tables and chains of tasks, in a guest (``rlinf.envs.guests.calvin``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.config.schema.env import CalvinEnvConfig, EnvConfig
from rlinf.envs.guest_remote import installed_versions
from rlinf.envs.guest_settings import check_guest_config, guest_setup
from rlinf.envs.guests.calvin_chains import chains_that_begin
from rlinf.envs.guests.calvin_tasks import TASKS
from rlinf.envs.reset_states import require_start_states
from rlinf.envs.simulators.guest_env import guest_arguments
from rlinf.envs.single_env_vector import SingleEnvVectorEnv
from rlinf.envs.versions import hash_files
from rlinf.errors import ConfigError

if TYPE_CHECKING:
    from rlinf.envs.guests.calvin_chains import Chain

SOURCE_VARIABLE = "RLINF_CALVIN_ENV"
"""Names the folder of mees/calvin_env for recipes that name none."""
_ADAPTER = "calvin"


class CalvinEnv(SingleEnvVectorEnv):
    """PyBullet: ``states`` float32 [B, 15] or [B, 7], images uint8 [B, H, W, 3], sentences.

    An episode is a chain of tasks, which a reset-state id names: with ``use_ordered_reset_state_ids`` an evaluation
    of 1,000 episodes plays each published chain once. Each task that is solved gives the reward 1, so that the
    return is the number of tasks solved in a row; the last one's success ends the episode, as do ``max_task_steps``
    without success.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: As ``check_calvin``.
        EnvironmentFailure: A guest did not start, or its simulator failed.
    """

    def __init__(self, cfg: CalvinEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        check_calvin(cfg)
        params = {
            "source_path": str(find_source(cfg)),
            "scene": cfg.scene,
            "first_tasks": cfg.first_tasks,
            "chain_length": cfg.chain_length,
            "max_task_steps": cfg.max_task_steps,
            "cameras": cfg.cameras,
            "image_size": cfg.image_size,
            "wrist_image_size": cfg.wrist_image_size,
            "joint_states": cfg.joint_states,
        }
        arguments = guest_arguments(cfg, cfg.guest, _ADAPTER, params)
        super().__init__(cfg, num_envs=num_envs, first_env=first_env, **arguments)

    def versions(self) -> dict[str, str]:
        """See ``VectorEnv``; those of the guest's interpreter."""
        assert isinstance(self.cfg, CalvinEnvConfig)
        return calvin_versions(self.cfg)


def calvin_chains(cfg: CalvinEnvConfig) -> list[Chain]:
    """Return the chains that a section plays, by reset-state id.

    Raises:
        ConfigError: ``first_tasks`` has a name that is no task, or no chain begins with them.
    """
    unknown = sorted(set(cfg.first_tasks or ()) - set(TASKS))
    if unknown:
        raise ConfigError(f"env.*.first_tasks: received {unknown}. CALVIN has the tasks {', '.join(TASKS)}.")
    chains = chains_that_begin(cfg.first_tasks)
    if not chains:
        raise ConfigError(
            f"env.*.first_tasks: received {cfg.first_tasks}, with which no published chain begins. Name other tasks, "
            "or null for all."
        )
    return chains


def find_source(cfg: CalvinEnvConfig) -> Path:
    """Return the folder of mees/calvin_env, on the guest's machine.

    Raises:
        ConfigError: None is named, or the named one has no ``calvin_env``.
    """
    named = cfg.source_path or os.environ.get(SOURCE_VARIABLE)
    if named and cfg.guest.address is not None:
        return Path(named)
    if named and (Path(named) / "calvin_env" / "envs" / "play_table_env.py").is_file():
        return Path(named).resolve()
    received = f"'{named}', which has no calvin_env" if named else f"null, and {SOURCE_VARIABLE} is not set"
    raise ConfigError(
        f"env.*.source_path: received {received}. Copy CALVIN's simulator and name the folder: "
        "git clone https://github.com/mees/calvin_env"
    )


def calvin_versions(cfg: CalvinEnvConfig) -> dict[str, str]:
    """Return the versions that results depend on: PyBullet's, and a hash of the simulator's code, settings and scenes.

    On another machine these files are not hashed.

    Raises:
        ConfigError: The interpreter, PyBullet in it, or the simulator's folder is not there.
        EnvironmentFailure: The interpreter does not start.
    """
    source = find_source(cfg)
    installed = installed_versions(guest_setup(cfg.guest, _ADAPTER), cfg.env_type)
    if not installed["pybullet"]:
        raise ConfigError(
            f"env.*.guest.python: received '{cfg.guest.python}', which has no pybullet. Install it: bash "
            "requirements/install.sh embodied --guest calvin"
        )
    if cfg.guest.address is not None:
        return {"pybullet": installed["pybullet"]}
    files = [
        file for folder in ("calvin_env", "conf", "data") for file in (source / folder).rglob("*") if file.is_file()
    ]
    return {"pybullet": installed["pybullet"], "calvin_env": hash_files(files, source)}


def check_calvin(cfg: EnvConfig) -> None:
    """Check a section; see ``EnvConfig.readiness_check``.

    Raises:
        ConfigError: The interpreter or the simulator's folder is not there; ``cameras`` is empty or has one twice;
            ``first_tasks`` as ``calvin_chains``; ``num_start_states`` is more than there are chains.
    """
    assert isinstance(cfg, CalvinEnvConfig)
    if not cfg.cameras or len(set(cfg.cameras)) < len(cfg.cameras):
        raise ConfigError(f"env.*.cameras: received {cfg.cameras}; allowed are static and gripper, each once.")
    require_start_states(cfg, len(calvin_chains(cfg)))
    check_guest_config(cfg)
    find_source(cfg)
