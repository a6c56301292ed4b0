"""What a simulator cannot do on any machine is refused by the plan, not by the worker."""

import pytest

from rlinf.cli.main import main
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.env import EnvConfig
from rlinf.errors import ConfigError

RECIPE = "maniskill_pushcube_ppo_mlp"


@pytest.mark.parametrize("section", ["train", "eval"])
@pytest.mark.parametrize(
    ("overrides", "key", "said"),
    [
        (["+{0}.init_params.sim_backend=gpu"], "init_params", "received sim_backend=gpu, and cpu next to init_params"),
        (
            ["+{0}.sim_backend=gpu", "+{0}.init_params.sim_backend=cpu"],
            "init_params",
            "received sim_backend=cpu, and gpu next to init_params. Remove it here; {0}.sim_backend is cpu",
        ),
        (["+{0}.init_params.num_envs=4"], "init_params", "received num_envs=4; {0}.total_num_envs says"),
        (
            ["+{0}.sim_backend=gpu", "+{0}.init_params.reconfiguration_freq=1"],
            "init_params",
            "received reconfiguration_freq=1; the scenes of a batch on a GPU stay",
        ),
        (
            ["+{0}.sim_backend=gpu", "{0}.num_env_processes=2"],
            "num_env_processes",
            "received 2; with sim_backend=gpu the environments of a stage are one simulation",
        ),
        (
            ["+{0}.sim_backend=gpu", "+{0}.enable_offload=true"],
            "enable_offload",
            "received True; env_type=maniskill with sim_backend=gpu keeps its scenes on the GPU",
        ),
        (["+{0}.sim_backend=tpu"], "sim_backend", "tpu"),
        (
            ["{0}.init_params.obs_mode=rgb+state"],
            "init_params",
            "received obs_mode=rgb+state; allowed are state, state_dict, rgb. Set it to rgb for images with what the "
            "arm knows of itself, and {0}.show_objects to true",
        ),
        (["{0}.init_params.obs_mode=depth"], "init_params", "received obs_mode=depth; allowed are"),
        (
            ["+{0}.render_quality=light"],
            "init_params",
            "received obs_mode=state and sensor_configs=None, with {0}.render",
        ),
        (
            [
                "+{0}.render_quality=full",
                "{0}.init_params.obs_mode=rgb",
                "+{0}.init_params.sensor_configs.shader_pack=rt",
            ],
            "init_params",
            "remove sensor_configs.shader_pack",
        ),
    ],
)
def test_what_contradicts_where_it_simulates_is_refused(
    section: str, overrides: list[str], key: str, said: str
) -> None:
    path = f"env.{section}"
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(RECIPE, ["++env.train.num_env_processes=0", *(o.format(path) for o in overrides)]))
    assert f"{path}.{key}: " in str(caught.value)
    assert said.format(path) in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        ["+env.train.init_params.sim_backend=cpu"],
        ["+env.train.init_params.reconfiguration_freq=1"],
        ["+env.train.sim_backend=gpu", "env.train.num_env_processes=0"],
        ["env.train.init_params.obs_mode=state_dict"],
        ["env.train.init_params.obs_mode=rgb", "+env.train.render_quality=light", "+env.train.show_objects=true"],
        [
            "+env.train.sim_backend=gpu",
            "env.train.num_env_processes=0",
            "+env.train.init_params.sim_backend=physx_cuda",
            "+env.train.init_params.reconfiguration_freq=0",
        ],
    ],
)
def test_both_places_are_valid(overrides: list[str]) -> None:
    validate_cfg(load_recipe(RECIPE, overrides))


@pytest.mark.parametrize("section", ["train", "eval"])
def test_offloading_an_environment_without_device_memory_is_refused(
    section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = load_recipe("gym_cartpole_ppo_mlp", [f"env.{section}.enable_offload=true"])
    with pytest.raises(ConfigError, match=f"env.{section}.enable_offload: received True; env_type=gymnasium .*Remove"):
        validate_cfg(cfg)
    monkeypatch.setattr(EnvConfig, "supports_offload", True)
    validate_cfg(cfg)


def test_the_plan_accepts_a_gpu_that_this_machine_may_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [
        f"{key}.{section}.{rest}"
        for section in ("train", "eval")
        for key, rest in (("+env", "sim_backend=gpu"), ("++env", "num_env_processes=0"))
    ]
    assert main(["plan", RECIPE, *overrides]) == 0
    said = capsys.readouterr()
    assert "CUDA" not in said.out + said.err
