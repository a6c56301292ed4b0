"""What a simulator cannot do on any machine is refused by the plan, not by the worker."""

import pytest

from rlinf.cli.main import main
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import EnvConfig
from rlinf.errors import ConfigError

RECIPE = "maniskill_pushcube_ppo_mlp"


@pytest.mark.parametrize("section", ["train", "eval"])
@pytest.mark.parametrize(
    ("override", "received"),
    [
        ("sim_backend=gpu", "received sim_backend=gpu, num_envs=1"),
        ("num_envs=4", "received sim_backend=physx_cpu, num_envs=4"),
    ],
)
def test_a_batch_simulation_is_refused(section: str, override: str, received: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(RECIPE, [f"+env.{section}.init_params.{override}"]))
    assert f"env.{section}.init_params: {received}; every environment is a simulation of its own" in str(caught.value)


def test_a_backend_on_the_cpu_is_valid() -> None:
    validate_cfg(load_recipe(RECIPE, ["+env.train.init_params.sim_backend=cpu"]))


@pytest.mark.parametrize("section", ["train", "eval"])
def test_offloading_an_environment_without_device_memory_is_refused(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = load_recipe("gym_cartpole_ppo_mlp", [f"env.{section}.enable_offload=true"])
    with pytest.raises(ConfigError, match=f"env.{section}.enable_offload: received True; env_type=gymnasium .*Remove"):
        validate_cfg(cfg)
    monkeypatch.setattr(EnvConfig, "supports_offload", True)
    validate_cfg(cfg)


def test_the_plan_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", RECIPE, "+env.train.init_params.sim_backend=gpu"]) != 0
    said = capsys.readouterr()
    assert "env.train.init_params: received sim_backend=gpu" in said.out + said.err
