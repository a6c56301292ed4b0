"""What this machine lacks for a recipe is told before anything is launched."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.cluster import EnvConfigs, NodeGroupConfig
from rlinf.config.schema.env import ManiSkillEnvConfig
from rlinf.errors import CheckpointError, ConfigError, DatasetError, MissingPackageError, RLinfError
from rlinf.runners import readiness
from rlinf.runners.readiness import check_ready, find_missing


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., None]:
    """Return a function that checks a recipe whose results go below ``tmp_path``."""

    def check(*overrides: str, recipe: str = "gym_cartpole_ppo_mlp", log_path: Path = tmp_path / "a" / "b") -> None:
        check_ready(validate_cfg(load_recipe(recipe, [f"runner.logger.log_path={log_path}", *overrides])))

    return check


def test_a_machine_that_has_everything_is_ready(ready: Callable[..., None], tmp_path: Path) -> None:
    ready()
    assert not list(tmp_path.iterdir()), "looking makes nothing"


@pytest.mark.parametrize("package", ["torch", "ray"])
def test_a_missing_package_is_told_with_its_command(
    ready: Callable[..., None], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(MissingPackageError, match=rf"'{package}', which is not installed .*requirements/install\.sh"):
        ready()


def test_a_file_in_the_place_of_the_results_folder_is_told(ready: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"runner\.logger\.log_path: '.*file' is a file.*Set runner\.logger\.log_path"
    ):
        ready(log_path=tmp_path / "file" / "results")


def test_a_full_disk_is_told(ready: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(ConfigError, match=r"runner\.logger\.log_path: the disk of .* is full.*Free some space"):
        ready()


def test_weights_and_models_that_are_not_there_are_told(ready: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"runner\.ckpt_path: '.*absent\.pt' does not exist.*remove the key"):
        ready(f"runner.ckpt_path={tmp_path}/absent.pt")
    with pytest.raises(ConfigError, match=r"actor\.model\.model_path: there is no folder.*hf download"):
        ready(f"actor.model.model_path={tmp_path}/absent", recipe="tiny_math_sft")


def test_services_that_recipes_choose_are_looked_at(tmp_path: Path) -> None:
    cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [f"runner.logger.log_path={tmp_path}"]))
    logger = dataclasses.replace(cfg.runner.logger, logger_backends=["nowhere"])
    with pytest.raises(ConfigError, match="names 'nowhere'"):
        check_ready(dataclasses.replace(cfg, runner=dataclasses.replace(cfg.runner, logger=logger)))


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that hides packages."""
    find = importlib.util.find_spec

    def hide(*packages: str) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in packages else find(name))

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return hide


@pytest.mark.parametrize(
    ("recipe", "package", "key", "remedy"),
    [
        ("metaworld_reach_ppo_mlp", "metaworld", r"env\.train", r"install\.sh embodied --env metaworld"),
        ("maniskill_pushcube_ppo_mlp", "mani_skill", r"env\.train", r"install\.sh embodied --env maniskill"),
        ("frankasim_pickcube_ppo_mlp", "mujoco", r"env\.train", r"install\.sh embodied --env frankasim"),
        ("gym_fetchreach_ppo_mlp", "gymnasium_robotics", r"env\.train", r"install\.sh embodied --env robotics"),
        ("tiny_math_sft", "transformers", r"actor\.model", r"install\.sh reason"),
        ("tiny_math_sft", "datasets", r"data", r"install\.sh reason"),
    ],
)
def test_packages_that_a_section_needs_are_told_with_their_installer(
    ready: Callable[..., None], without: Callable[..., None], recipe: str, package: str, key: str, remedy: str
) -> None:
    without(package, "metaworld", "mani_skill", "mujoco", "gymnasium_robotics")
    with pytest.raises(RLinfError, match=rf"(?m)^.*{key} needs the package '{package}'.*{remedy}"):
        ready(recipe=recipe)


def test_engines_that_are_not_installed_are_told(ready: Callable[..., None], without: Callable[..., None]) -> None:
    without("vllm")
    with pytest.raises(RLinfError, match=r"rollout needs the package 'vllm'.*install\.sh reason --engine vllm"):
        ready("rollout.rollout_backend=vllm", recipe="tiny_math_grpo")


def test_all_that_is_missing_is_told_at_once(
    ready: Callable[..., None], without: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    without("transformers", "datasets")
    with pytest.raises(ConfigError, match=r"things that the recipe needs are missing") as caught:
        ready(recipe="tiny_math_sft")
    for part in ("'transformers'", "'datasets'", "actor.model.model_path", "data.train_data_paths[0]"):
        assert part in str(caught.value)


@pytest.mark.parametrize("elsewhere", ["nodes", "interpreter", "cluster"])
def test_packages_of_other_machines_are_not_looked_for(
    tmp_path: Path, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    cfg = validate_cfg(load_recipe("metaworld_reach_ppo_mlp", [f"runner.logger.log_path={tmp_path}"]))
    without("metaworld")
    if elsewhere == "cluster":
        monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    elif elsewhere == "nodes":
        cfg = dataclasses.replace(cfg, cluster=dataclasses.replace(cfg.cluster, num_nodes=2))
    else:
        settings = EnvConfigs(node_ranks="all", python_interpreter_path="/opt/metaworld/bin/python")
        group = NodeGroupConfig(label="arms", node_ranks="all", env_configs=[settings])
        cfg = dataclasses.replace(cfg, cluster=dataclasses.replace(cfg.cluster, node_groups=[group]))
    assert find_missing(cfg) == []


def test_demonstrations_that_were_not_made_are_told(
    ready: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=r"algorithm\.demo_buffer\.load_path: '.*' does not exist.*make it"):
        ready(recipe="gym_mountain_car_rlpd_mlp")


def test_an_evaluation_needs_nothing_to_learn_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = ["runner.only_eval=true", f"runner.ckpt_path={tmp_path}", f"runner.logger.log_path={tmp_path}"]
    assert find_missing(validate_cfg(load_recipe("gym_mountain_car_rlpd_mlp", overrides))) == []


def test_ids_of_environments_that_nobody_registered_are_told_with_the_closest(ready: Callable[..., None]) -> None:
    with pytest.raises(ConfigError, match=r"env\.train\.init_params\.id: .*'CartPol-v1'.*Did you mean 'CartPole-v1'"):
        ready("env.train.init_params.id=CartPol-v1")
    ready("env.train.init_params.id=CartPole")
    with pytest.raises(MissingPackageError, match=r"env\.eval needs the package 'no_such_package'"):
        ready("env.eval.import_module=no_such_package.envs")


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_simulation_on_a_gpu_needs_one(
    has_gpu: bool, ready: Callable[..., None], without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without()
    monkeypatch.setattr(ManiSkillEnvConfig, "required_packages", lambda _: ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    ready(recipe="maniskill_pushcube_ppo_mlp")
    on_gpu = "+env.eval.sim_backend=gpu", "++env.eval.num_env_processes=0"
    if has_gpu:
        ready(*on_gpu, recipe="maniskill_pushcube_ppo_mlp")
        return
    cfg = validate_cfg(load_recipe("maniskill_pushcube_ppo_mlp", list(on_gpu)))
    assert not list(readiness.check_environments(cfg)), "a plan does not look for the GPU of another machine"
    with pytest.raises(ConfigError, match=r"env\.eval\.sim_backend: received gpu; .*cluster\.component_placement.*cpu"):
        ready(*on_gpu, recipe="maniskill_pushcube_ppo_mlp")


def test_tasks_that_do_not_exist_are_told(ready: Callable[..., None], without: Callable[..., None]) -> None:
    with pytest.raises(RLinfError, match=r"env\.train\.task_name: Meta-World has no task 'reach'.*'reach-v3'"):
        ready("env.train.task_name=reach", recipe="metaworld_reach_ppo_mlp")


def test_offline_no_simulator_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom rlinf.config import load_recipe, validate_cfg\n"
        "from rlinf.runners.readiness import find_missing\n"
        "cfg = validate_cfg(load_recipe('gym_cartpole_ppo_mlp', ['env.train.init_params.id=CartPol-v1']))\n"
        "assert find_missing(cfg, offline=True) == []\n"
        "assert not {'gymnasium', 'torch', 'ray'} & set(sys.modules)\n"
        "assert len(find_missing(cfg)) == 1 and not {'torch', 'ray'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_folder_that_holds_a_run_is_told(ready: Callable[..., None], tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "gym_cartpole_ppo_mlp"
    (folder / "checkpoints" / "global_step_1").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"already holds a run.*runner\.resume_dir=auto.*runner\.overwrite=true"):
        ready()
    ready("runner.overwrite=true")
    ready("runner.logger.experiment_name=another")
    ready("runner.only_eval=true", f"runner.ckpt_path={tmp_path}")
