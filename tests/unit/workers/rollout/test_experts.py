"""What the expert labels, when it acts, and where experts come from."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.registries import scripted_policies
from rlinf.config.schema.algorithm import DAggerLossConfig
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.expert import ExpertConfig, PolicyExpertConfig, ScriptedExpertConfig
from rlinf.config.schema.model import MLPPolicyConfig, ModelConfig
from rlinf.errors import RegistryError
from rlinf.models import get_model, get_policy
from rlinf.models.base_policy import BasePolicy
from rlinf.models.trainable import TrainableModel
from rlinf.workers.rollout import experts
from rlinf.workers.rollout.experts import Teacher, build_teacher, register_expert
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import observations

OBS = {"states": torch.zeros(400, 3)}
EXPERT = torch.arange(400.0).view(400, 1, 1).expand(400, 1, 2) / 100


def make_policy() -> TrainableModel:
    torch.manual_seed(0)
    cfg = MLPPolicyConfig(model_type="mlp_policy", obs_dim=3, action_dim=2, hidden_dims=[4], action_scale=2.0)
    return get_model(cfg)


def mix_actions(step: int = 1, **keys: float) -> tuple[Any, torch.Tensor, dict[str, torch.Tensor]]:
    policy = make_policy()
    torch.seed()  # nothing depends on the global state
    teacher = Teacher(DAggerLossConfig(expert=ExpertConfig(expert_type="x"), **keys), policy, lambda obs: EXPERT)
    teacher.begin(step)
    actions, output = policy.predict_action_batch(OBS, mode="eval")
    mixed, report = teacher.mix_actions(OBS, actions, output, torch.Generator().manual_seed(0))
    return actions, mixed, report.forward_inputs


def test_every_state_is_labelled_in_the_units_of_the_policy() -> None:
    _, _, inputs = mix_actions()
    torch.testing.assert_close(inputs["label"], EXPERT / 2)
    assert inputs["labelled"].all()


@pytest.mark.parametrize(("step", "share"), [(1, 1.0), (2, 0.5), (3, 0.25)])
def test_the_expert_acts_ever_more_rarely(step: int, share: float) -> None:
    actions, mixed, inputs = mix_actions(step, beta=1.0, beta_decay=0.5)
    expert_mask = inputs["expert_acts"]
    assert float(expert_mask.float().mean()) == pytest.approx(share, abs=0.08)
    torch.testing.assert_close(mixed[expert_mask], EXPERT[expert_mask])
    torch.testing.assert_close(mixed[~expert_mask], actions[~expert_mask])


def test_who_acts_follows_from_the_generator() -> None:
    first, second = (mix_actions(2, beta=1.0, beta_decay=0.5)[2]["expert_acts"] for _ in range(2))
    assert torch.equal(first, second)


def test_the_expert_takes_over_where_the_policy_is_too_far_off() -> None:
    actions, mixed, inputs = mix_actions(takeover_distance=1.0)
    far = ((EXPERT - actions) / 2).square().mean((-2, -1)).sqrt() > 1.0
    assert 0 < int(far.sum()) < 400
    assert torch.equal(inputs["expert_acts"], far)
    assert torch.equal(inputs["labelled"], far)
    torch.testing.assert_close(mixed, torch.where(far.view(-1, 1, 1), EXPERT, actions))


def test_a_trained_policy_is_an_expert(tmp_path: Path) -> None:
    policy = make_policy()
    torch.save(policy.state_dict(), tmp_path / "expert.pt")
    cfg = PolicyExpertConfig(expert_type="policy", ckpt_path=str(tmp_path / "expert.pt"), model=policy.cfg)
    act = experts.experts.get("policy")(cfg, recipe=recipe_of(policy.cfg), device=torch.device("cpu"))
    obs = {"states": torch.randn(5, 3)}
    torch.testing.assert_close(act(obs), policy.predict_action_batch(obs, mode="eval")[0])


def recipe_of(model: ModelConfig, precision: str | None = None) -> Any:
    rollout = SimpleNamespace(model=SimpleNamespace(precision=precision))
    return SimpleNamespace(actor=SimpleNamespace(model=model), rollout=rollout)


@pytest.mark.parametrize("precision", [None, "bf16"])
def test_a_published_folder_is_an_expert_in_the_precision_of_the_rollout(
    tmp_path: Path, precision: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    published = pi_policy(tmp_path, "pi0", image_keys=["main_images", "wrist_images"])
    built: list[BasePolicy] = []

    def build(*args: Any, **keys: Any) -> BasePolicy:
        built.append(get_policy(*args, **keys))
        return built[0]

    monkeypatch.setattr(experts, "get_policy", build)
    student = replace(published.cfg, model_path=str(tmp_path / "student"))
    cfg = PolicyExpertConfig(expert_type="policy", model_path=published.cfg.model_path)
    act = experts.build_policy_expert(cfg, recipe=recipe_of(student, precision), device=torch.device("cpu"))
    obs = observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-0.9, 0.0, 0.7]])}
    expected, _ = published.predict_action_batch(obs, mode="eval")
    tolerance = 1e-5 if precision is None else 0.1
    torch.testing.assert_close(act(obs).float(), expected, atol=tolerance, rtol=tolerance)
    dtypes = {parameter.dtype for parameter in built[0].parameters()}
    assert dtypes == {torch.float32 if precision is None else torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in built[0].parameters())


def test_a_scripted_policy_is_an_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_policies, "_entries", {})
    environment = EnvConfig(env_type="toy", total_num_envs=1, max_episode_steps=1, max_steps_per_rollout_epoch=1)
    scripted_policies.register("oracle", lambda env: lambda obs: EXPERT if env is environment else None)
    cfg = ScriptedExpertConfig(expert_type="scripted", policy="oracle")
    recipe = SimpleNamespace(env=SimpleNamespace(train=environment))
    act = experts.experts.get("scripted")(cfg, recipe=recipe, device=torch.device("cpu"))
    assert torch.equal(act(OBS), EXPERT)


def test_an_expert_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts.experts, "_entries", dict(experts.experts._entries))
    register_expert("oracle", lambda cfg, *, recipe, device: lambda obs: EXPERT)
    act = experts.experts.get("oracle")(ExpertConfig(expert_type="oracle"), recipe=None, device=None)
    assert torch.equal(act(OBS), EXPERT)
    with pytest.raises(RegistryError, match="Did you mean 'oracle'"):
        experts.experts.get("orcle")


def test_a_script_labels_chunks_where_it_sees_them_and_single_actions_next_to_the_policy() -> None:
    pytest.importorskip("metaworld")
    teachers = []
    for chunk in (1, 5):
        recipe: Any = validate_cfg(
            load_recipe("metaworld_reach_dagger_mlp", [f"actor.model.num_action_chunks={chunk}"])
        )
        teachers.append(build_teacher(recipe, make_policy(), torch.device("cpu")))
    assert isinstance(teachers[0], Teacher)
    assert teachers[1] is None
