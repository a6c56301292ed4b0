"""The environment of each worker's process: variables, interpreter and declared hardware.

Precedence: the node's at ``ray start`` < the head's set after that < ``env_configs.env_vars`` < what the launch sets.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf.config.schema.cluster import EnvConfigs, NodeGroupConfig
from rlinf.errors import ClusterError
from rlinf.placement import NodeGroup, NodeInfo, Placement, parse_node_ranks
from rlinf.placement.accelerator_kinds import VISIBLE_VARIABLES, kind_of
from rlinf.scheduler.ray_calls import results_of

# Lists of folders: a new value goes in front of the old one.
PATH_VARIABLES = frozenset(
    {
        "PATH",
        "LD_LIBRARY_PATH",
        "LIBRARY_PATH",
        "PYTHONPATH",
        "CPATH",
        "C_INCLUDE_PATH",
        "CPLUS_INCLUDE_PATH",
        "MANPATH",
        "PKG_CONFIG_PATH",
        "CMAKE_PREFIX_PATH",
        "DYLD_LIBRARY_PATH",
    }
)
# Belong to one process or one machine, or are set by Ray and the launch for each worker.
_PERSONAL = frozenset(
    {
        "_",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "TERM",
        "COLUMNS",
        "LINES",
        "HOME",
        "USER",
        "LOGNAME",
        "HOSTNAME",
        "SHELL",
        "TMPDIR",
        "DISPLAY",
        "VIRTUAL_ENV",
        "PYTEST_CURRENT_TEST",
        *VISIBLE_VARIABLES,
        "RLINF_NODE_RANK",
        "RLINF_CPU_SLOTS",
        "RLINF_COMM_NET_DEVICES",
    }
)
# What the dynamic loader, the C library, the interpreter or Ray read before a worker can set anything itself.
_EARLY = PATH_VARIABLES | {"LANG", "TMPDIR", "TZ"}
_EARLY_PREFIXES = ("DYLD_", "GLIBC_", "LC_", "LD_", "MALLOC_", "PYTHON", "RAY_")
_PERSONAL_PREFIXES = ("RAY_", "SSH_", "XDG_", "DBUS_", "BASH_FUNC_")

# Importing Ray on a busy machine, or from a shared file system.
_INTERPRETER_SECONDS = 120
_QUERY_INTERPRETER = "import json, sys, ray; print(json.dumps(['%d.%d' % sys.version_info[:2], ray.__version__]))"


@dataclass(frozen=True)
class ProcessEnvironment:
    """What a worker's process changes in its environment before it imports anything heavy.

    Attributes:
        head: The head's variables that are newer than its ``ray start``.
        configured: Variables of ``env_configs``.
        launch: Variables of the launch itself.
        sys_path: Folders of the driver's code.
    """

    head: Mapping[str, str] = field(repr=False)
    configured: Mapping[str, str] = field(repr=False)
    launch: Mapping[str, str]
    sys_path: tuple[str, ...] = ()

    def apply(self) -> None:
        """Change ``os.environ`` and ``sys.path``."""
        for name, value in self.head.items():
            if name not in self.configured or name in PATH_VARIABLES:
                set_variable(name, value)
        for name, value in self.configured.items():
            set_variable(name, value)
        os.environ.update(self.launch)
        folders = [*self.sys_path, *self.head.get("PYTHONPATH", "").split(os.pathsep)]
        sys.path.extend(folder for folder in folders if folder and folder not in sys.path)


def early_variables(configured: Mapping[str, str]) -> dict[str, str]:
    """Return those of ``env_configs`` that must be there when a process starts, in the form that Ray wants.

    Ray writes them to its logs and shows them on command lines; the others, secrets among them, stay out of both.
    """
    return {
        name: f"{value}:${{{name}}}" if name in PATH_VARIABLES else value
        for name, value in configured.items()
        if name in _EARLY or name.startswith(_EARLY_PREFIXES)
    }


def set_variable(name: str, value: str) -> None:
    """Set a variable of this process; path-like ones get the new folders in front of the old."""
    old = os.environ.get(name, "")
    os.environ[name] = prepend_path(value, old) if name in PATH_VARIABLES else value


def prepend_path(new: str, old: str) -> str:
    """Return the folders of ``new`` followed by those of ``old`` that are not among them."""
    first = [part for part in new.split(os.pathsep) if part]
    return os.pathsep.join([*first, *(part for part in old.split(os.pathsep) if part and part not in first)])


def environment_hashes() -> dict[str, str]:
    """Return a hash for each variable of this process: enough to compare, without handing out secrets."""
    return {name: _hash(value) for name, value in os.environ.items()}


def newer_than(hashes: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables that differ from those behind ``hashes``, without personal ones."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _PERSONAL and not name.startswith(_PERSONAL_PREFIXES) and hashes.get(name) != _hash(value)
    }


def code_folders() -> tuple[str, ...]:
    """Return the entries of ``sys.path`` that hold the user's code, not the interpreter's or its packages."""
    prefixes = (sys.prefix, sys.base_prefix)
    return tuple(
        os.path.abspath(entry)
        for entry in sys.path
        if not entry.startswith(prefixes) and "site-packages" not in entry and not entry.endswith(".zip")
    )


def _hash(value: str) -> str:
    return hashlib.blake2b(value.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def launch_environment(
    group: str,
    placement: Placement,
    placements: list[Placement],
    namespace: str,
    accelerators: Sequence[str],
) -> dict[str, str]:
    """Return a worker's identity and devices as variables; MASTER_ADDR and MASTER_PORT follow when rank 0 is up.

    Args:
        group: Name of the group.
        placement: Of this rank.
        placements: Of all ranks.
        namespace: Name of the run.
        accelerators: Ids of the accelerators it sees, as visible-devices variables want them.
    """
    visible = ",".join(accelerators)
    variables = {
        "GROUP_NAME": group,
        "WORKER_NAME": f"{group}:{placement.rank}",
        "RANK": str(placement.rank),
        "WORLD_SIZE": str(len(placements)),
        "LOCAL_RANK": str(placement.local_rank),
        "LOCAL_WORLD_SIZE": str(placement.local_world_size),
        "NODE_RANK": str(placement.placement_node_rank),
        "CLUSTER_NODE_RANK": str(placement.cluster_node_rank),
        "NODE_LOCAL_RANK": str(placement.local_rank),
        "NODE_LOCAL_WORLD_SIZE": str(placement.local_world_size),
        "LOCAL_ACCELERATOR_RANK": str(placement.local_accelerator_rank),
        "VISIBLE_DEVICES": ",".join(placement.visible_accelerators),
        "CUDA_VISIBLE_DEVICES": visible,
        "ACCELERATOR_TYPE": str(placement.accelerator_type),
        "LOCAL_HARDWARE_RANKS": ",".join(map(str, placement.local_hardware_ranks)),
        "NODE_GROUP_LABEL": placement.node_group_label,
        "CLUSTER_NAMESPACE": namespace,
    }
    kind = kind_of(placement.accelerator_type)
    return variables | dict.fromkeys(kind.visible_variables if kind else (), visible)


class NodeSettings:
    """The recipe's words on each node of each group.

    Args:
        configs: ``cluster.node_groups``.
        groups: The resolved groups by label.
    """

    def __init__(self, configs: Sequence[NodeGroupConfig], groups: Mapping[str, NodeGroup]) -> None:
        self._environments: dict[tuple[str, int], EnvConfigs] = {}
        self._devices: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self._declared: set[str] = set()
        # (config path, node rank, interpreter)
        self.interpreters: list[tuple[str, int, str]] = []
        for index, config in enumerate(configs):
            nodes = groups[config.label].node_ranks
            for number, entry in enumerate(config.env_configs):
                is_all = str(entry.node_ranks).strip() == "all"  # of the group, not of the cluster
                path = f"cluster.node_groups[{index}].env_configs[{number}]"
                for rank in nodes if is_all else parse_node_ranks(entry.node_ranks, max(nodes) + 1):
                    self._environments[config.label, rank] = entry
                    if entry.python_interpreter_path:
                        where = f"{path}.python_interpreter_path"
                        self.interpreters.append((where, rank, entry.python_interpreter_path))
            if config.hardware is not None:
                self._declared.add(config.label)
                for device in config.hardware.configs:
                    described = {"type": config.hardware.type, **device}
                    self._devices[config.label, int(device["node_rank"])].append(described)

    def environment(self, label: str, node_rank: int) -> EnvConfigs | None:
        """Return the entry of ``env_configs`` for a node of a group, if it has one."""
        return self._environments.get((label, node_rank))

    def devices(self, label: str, node_rank: int) -> list[dict[str, Any]] | None:
        """Return the declared hardware of a node in the order of its hardware ranks; None if the group has none."""
        return self._devices[label, node_rank] if label in self._declared else None


def check_interpreters(settings: NodeSettings, nodes: Sequence[NodeInfo]) -> None:
    """Query the version of every configured interpreter, on its node: Ray would try to start a wrong one without end.

    Raises:
        ClusterError: An interpreter cannot run workers; the message names all such nodes.
    """
    query = ray.remote(query_interpreter)
    answers = [
        query.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[rank].node_id, soft=False)
        ).remote(interpreter)
        for _, rank, interpreter in settings.interpreters
    ]
    wanted = ("{}.{}".format(*sys.version_info[:2]), ray.__version__)
    problems = []
    for (path, rank, interpreter), answer in zip(
        settings.interpreters, results_of(answers, "a process on each node"), strict=True
    ):
        where = f"{path}: '{interpreter}' on node {rank} ({nodes[rank].hostname or nodes[rank].ip})"
        if isinstance(answer, str):
            problems.append(f"{where} cannot run Ray: {answer}")
        elif answer != wanted:
            problems.append(
                f"{where} has Python {answer[0]} and Ray {answer[1]}; the driver's Python {wanted[0]} and Ray "
                f"{wanted[1]} are needed."
            )
    if problems:
        remedy = "Install RLinf there, with the same versions, and give the path of that python; or remove the key."
        raise ClusterError("\n".join([*problems, remedy]))


def query_interpreter(interpreter: str) -> tuple[str, str] | str:
    """Return the versions of Python and Ray that an interpreter has, or why it has none."""
    try:
        answer = subprocess.run(
            [*interpreter.split(), "-c", _QUERY_INTERPRETER],
            capture_output=True,
            text=True,
            timeout=_INTERPRETER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = answer.stdout.splitlines()
    if answer.returncode or not lines:
        said = answer.stderr.strip().splitlines()
        return said[-1] if said else f"it exits with {answer.returncode}"
    python, version = json.loads(lines[-1])
    return python, version
