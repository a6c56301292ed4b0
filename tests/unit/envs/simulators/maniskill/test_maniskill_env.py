"""``env_type: maniskill`` keeps the rules of environments; packages and batch simulations are named."""

import sys
from typing import Any

import pytest
from maniskill_configs import PUSH_CUBE, maniskill_config

from rlinf.envs import make_vector_env
from rlinf.envs.conformance import check_vector_env
from rlinf.envs.simulators.maniskill.maniskill_batch import ManiSkillBatchEnv
from rlinf.envs.simulators.maniskill.maniskill_env import ManiSkillEnv
from rlinf.envs.simulators.maniskill.maniskill_tasks import TASK_DESCRIPTIONS
from rlinf.errors import ConfigError, MissingPackageError


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mani_skill", None)
    monkeypatch.delitem(sys.modules, "mani_skill.envs", raising=False)
    with pytest.raises(MissingPackageError, match=r"bash requirements/install.sh embodied --env maniskill"):
        make_vector_env(maniskill_config(), num_envs=1)


@pytest.mark.parametrize("keys", [{"sim_backend": "gpu"}, {"num_envs": 4}])
def test_another_simulation_than_the_section_says_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"init_params: received .*Remove it"):
        make_vector_env(maniskill_config(init_params=PUSH_CUBE | keys), num_envs=1)


def test_the_section_says_which_class_it_is() -> None:
    assert ManiSkillEnv.class_for(maniskill_config()) is ManiSkillEnv
    assert ManiSkillEnv.class_for(maniskill_config(sim_backend="gpu")) is ManiSkillBatchEnv


@pytest.mark.maniskill
def test_states_conform() -> None:
    with make_vector_env(maniskill_config(), num_envs=2) as env:
        assert env.action_dim == 4
        assert env.observation_space["states"].shape == (35,)
        assert env.reset(0)["task_descriptions"] == [TASK_DESCRIPTIONS["PushCube-v1"]] * 2
        check_vector_env(env, rebuild=lambda: make_vector_env(maniskill_config(), num_envs=2))
