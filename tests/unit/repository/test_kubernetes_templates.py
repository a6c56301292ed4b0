"""The Kubernetes templates: objects that KubeRay knows, each pod with its rank, and the job with that very cluster."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml
from repository_tree import ROOT

from rlinf.config import list_recipes

FOLDER = ROOT / "ray_utils" / "kuberay"
IN_IMAGE = "/opt/rlinf"
"""Where the repository is in the images of ``docker/Dockerfile``."""


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return loaded


CLUSTER = load("raycluster.yaml")
JOB = load("rayjob.yaml")
GROUPS = [CLUSTER["spec"]["headGroupSpec"], *CLUSTER["spec"]["workerGroupSpecs"]]


@pytest.mark.parametrize(("manifest", "kind"), [(CLUSTER, "RayCluster"), (JOB, "RayJob")])
def test_the_object_is_one_that_kuberay_knows(manifest: dict[str, Any], kind: str) -> None:
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", kind)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", manifest["metadata"]["name"])
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}


def test_the_job_makes_the_very_cluster_of_the_other_file() -> None:
    assert JOB["spec"]["rayClusterSpec"] == CLUSTER["spec"]


def test_nobody_without_the_token_can_talk_to_the_cluster() -> None:
    assert CLUSTER["spec"]["authOptions"] == {"mode": "token"}
    # The first version of Ray whose tokens KubeRay makes.
    assert tuple(map(int, CLUSTER["spec"]["rayVersion"].split("."))) >= (2, 52, 0)


def test_every_pod_has_its_own_rank_before_ray_starts() -> None:
    ranks = []
    for group in GROUPS:
        template = group["template"]
        ranks.append(template["metadata"]["labels"]["rlinf/node-rank"])
        (container,) = template["spec"]["containers"]
        (rank,) = [entry for entry in container["env"] if entry["name"] == "RLINF_NODE_RANK"]
        assert rank["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['rlinf/node-rank']"
    assert ranks == [str(rank) for rank in range(len(GROUPS))]


@pytest.mark.parametrize("group", CLUSTER["spec"]["workerGroupSpecs"], ids=lambda group: group["groupName"])
def test_a_group_is_one_pod_because_its_pods_would_share_a_rank(group: dict[str, Any]) -> None:
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 1)
    assert "rayStartParams" in group


@pytest.mark.parametrize("index", range(len(GROUPS)))
def test_pods_can_be_scheduled_and_share_memory_and_results(index: int) -> None:
    pod = GROUPS[index]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"].startswith("rlinf:")
    assert container["resources"]["limits"] == container["resources"]["requests"]
    assert all(isinstance(value, str) for value in container["resources"]["limits"].values())
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes)
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"
    assert f"{IN_IMAGE}/results" in mounts


def test_the_entrypoint_trains_a_recipe_on_all_pods() -> None:
    shell, option, command = shlex.split(JOB["spec"]["entrypoint"])
    assert (shell, option) == ("bash", "-c")
    steps = [shlex.split(step) for step in command.split("&&")]
    assert steps[0] == ["cd", IN_IMAGE]
    assert steps[1][1:] == ["ray_utils/check_ray.sh", str(len(GROUPS))]
    program, script, *arguments = steps[2]
    assert program == "python"
    assert (ROOT / script).is_file()
    assert arguments[arguments.index("--config-name") + 1] in list_recipes()
    assert f"cluster.num_nodes={len(GROUPS)}" in arguments
    assert JOB["spec"]["shutdownAfterJobFinishes"] is True
