"""What ``cluster.node_groups`` says about each node: its processes' environment, their interpreter, its hardware.

Looked up once for each worker of a launch, so everything is resolved once, when the cluster starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf.config.schema.cluster import EnvConfigs, NodeGroupConfig
from rlinf.errors import ClusterError
from rlinf.placement import NodeGroup, NodeInfo, parse_node_ranks

# Importing Ray on a busy machine, or from a shared file system.
_INTERPRETER_SECONDS = 120
_ASK_INTERPRETER = "import json, sys, ray; print(json.dumps(['%d.%d' % sys.version_info[:2], ray.__version__]))"


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
    """Ask every configured interpreter for its version, on its node: Ray would try to start a wrong one for ever.

    Raises:
        ClusterError: An interpreter cannot run workers; the message names all such nodes.
    """
    ask = ray.remote(ask_interpreter)
    answers = [
        ask.options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[rank].node_id, soft=False)
        ).remote(interpreter)
        for _, rank, interpreter in settings.interpreters
    ]
    wanted = ("{}.{}".format(*sys.version_info[:2]), ray.__version__)
    problems = []
    for (path, rank, interpreter), answer in zip(settings.interpreters, ray.get(answers), strict=True):
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


def ask_interpreter(interpreter: str) -> tuple[str, str] | str:
    """Return the versions of Python and Ray that an interpreter has, or why it cannot tell."""
    try:
        answer = subprocess.run(
            [*interpreter.split(), "-c", _ASK_INTERPRETER],
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
