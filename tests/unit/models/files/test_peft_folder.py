"""Adapters travel to peft and back, and a model starts from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.data.packing import pack_sequences
from rlinf.errors import CheckpointError, ConfigError
from rlinf.models import get_model
from rlinf.models.files.peft_folder import PeftAdapter, write_adapter
from rlinf.models.lora import is_adapter
from tests.unit.models.tiny_language_models import save_tiny, tiny_config
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import observations, random_policy

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
LORA = {"is_lora": True, "lora_rank": 3, "lora_alpha": 5.0, "lora_target_modules": ["q_proj", "down_proj"]}


def trained(folder: Path, **keys: Any) -> Any:
    """Return a model whose adapters are not as they start."""
    model = get_model(tiny_config(folder, **LORA, **keys))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_adapter(name):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    return model


def logprobs(model: Any) -> torch.Tensor:
    found: torch.Tensor = model(pack_sequences([IDS])).logprobs[1:].detach()
    return found


def peft_logprobs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        rows = model(torch.tensor([IDS])).logits[0, :-1].log_softmax(-1)
    return rows.gather(-1, torch.tensor(IDS[1:]).unsqueeze(-1)).squeeze(-1)


def test_peft_loads_what_is_written_and_computes_the_same(tmp_path: Path) -> None:
    save_tiny(tmp_path / "start")
    model = trained(tmp_path / "start")
    write_adapter(tmp_path / "adapter", model.state_dict().items(), model.cfg)
    base = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "start")
    before = peft_logprobs(base)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(peft_logprobs(loaded), logprobs(model), rtol=1e-4, atol=1e-5)
    assert (before - logprobs(model)).abs().max() > 1e-2
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "start")
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (3, 5.0, "CAUSAL_LM")


def test_a_model_starts_from_what_peft_has_written(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "start")
    lora = peft.LoraConfig(r=3, lora_alpha=5.0, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    torch.manual_seed(3)
    written = peft.get_peft_model(base, lora).eval()
    written.save_pretrained(tmp_path / "adapter")
    model = get_model(tiny_config(tmp_path / "start", **LORA, lora_path=str(tmp_path / "adapter")))
    torch.testing.assert_close(logprobs(model), peft_logprobs(written), rtol=1e-4, atol=1e-5)
    with model.without_adapters():
        reference = logprobs(get_model(tiny_config(tmp_path / "start")))
        torch.testing.assert_close(logprobs(model), reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"lora_rank": 2}, "actor.model.lora_rank=3 actor.model.lora_alpha=5"),
        ({"lora_alpha": None}, "actor.model.lora_alpha=5"),
        ({"lora_target_modules": ["q_proj"]}, "lora_target_modules"),
        ({"lora_path": "nowhere"}, "holds no adapter of peft"),
    ],
)
def test_an_adapter_of_another_shape_is_refused_with_the_keys_to_set(
    tmp_path: Path, keys: dict[str, Any], named: str
) -> None:
    save_tiny(tmp_path / "start")
    model = trained(tmp_path / "start")
    write_adapter(tmp_path / "adapter", model.state_dict().items(), model.cfg)
    with pytest.raises(ConfigError, match="actor.model.lora_path") as error:
        get_model(tiny_config(tmp_path / "start", **{**LORA, "lora_path": str(tmp_path / "adapter"), **keys}))
    assert named in str(error.value)


@pytest.mark.parametrize("key", [{"use_dora": True}, {"bias": "all"}, {"rank_pattern": {"q": 2}}, {"peft_type": "IA3"}])
def test_adapters_that_do_more_are_refused(tmp_path: Path, key: dict[str, Any]) -> None:
    save_tiny(tmp_path / "start")
    model = trained(tmp_path / "start")
    write_adapter(tmp_path / "adapter", model.state_dict().items(), model.cfg)
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | key))
    with pytest.raises(CheckpointError, match=next(iter(key))):
        PeftAdapter(tmp_path / "adapter")


FILM: dict[str, Any] = {"head": "l1", "use_proprio": True, "state_dim": 2, "use_film": True, "add_value_head": True}
POLICIES: dict[str, Any] = {
    "openvla": lambda folder, **keys: random_policy("openvla", folder, **keys),
    "film": lambda folder, **keys: random_policy("oft", folder, **FILM, **keys),
    "pi0": lambda folder, **keys: pi_policy(folder, "pi0", noise_method="flow_ode", **keys),
}


def trained_policy(make: Any, folder: Path) -> Any:
    """Return a policy of which everything that is trained with adapters is not as it starts."""
    policy = make(folder, is_lora=True, lora_rank=3, lora_alpha=5.0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return policy


def act(policy: Any) -> torch.Tensor:
    obs = observations() | ({"states": torch.ones(3, 3) / 3} if hasattr(policy, "action_in_proj") else {})
    actions: torch.Tensor = policy.predict_action_batch(obs, mode="eval")[0]
    return actions


@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_is_trained_on_from_an_adapter_or_takes_it_in(kind: str, tmp_path: Path) -> None:
    make = POLICIES[kind]
    policy = trained_policy(make, tmp_path / "start")
    write_adapter(tmp_path / "adapter", policy.state_dict().items(), policy.cfg)
    path = {"lora_path": str(tmp_path / "adapter")}
    again = make(tmp_path / "start", is_lora=True, lora_rank=3, lora_alpha=5.0, **path)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in policy.state_dict().items())
    taken_in = make(tmp_path / "start", **path)
    assert not any(is_adapter(name) for name in taken_in.state_dict())
    assert (act(make(tmp_path / "start")) - act(policy)).abs().max() > 1e-3
    merged = dict(policy.export(lambda tensor: tensor))
    for name, tensor in taken_in.state_dict().items():
        torch.testing.assert_close(tensor, merged[name], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(act(taken_in), act(policy), rtol=0, atol=1e-4)


def test_peft_loads_the_adapter_of_a_policy_and_what_was_trained_whole(tmp_path: Path) -> None:
    make = POLICIES["film"]
    policy = trained_policy(make, tmp_path / "start")
    write_adapter(tmp_path / "adapter", policy.state_dict().items(), policy.cfg)
    base = make(tmp_path / "start")
    before = act(base)
    peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert not torch.allclose(act(base), before, atol=1e-3)
    torch.testing.assert_close(act(base), act(policy), rtol=0, atol=1e-5)


def test_an_adapter_of_another_policy_is_refused(tmp_path: Path) -> None:
    policy = trained_policy(POLICIES["film"], tmp_path / "start")
    write_adapter(tmp_path / "adapter", policy.state_dict().items(), policy.cfg)
    path: dict[str, Any] = {"lora_path": str(tmp_path / "adapter")}
    with pytest.raises(ConfigError, match=r"lora_path: the adapter in .* is of another model, which has"):
        random_policy("openvla", tmp_path / "other", **path)
    with pytest.raises(ConfigError, match=r"differ in .*Set the keys as the adapter was trained"):
        random_policy("openvla", tmp_path / "other", is_lora=True, lora_rank=3, lora_alpha=5.0, **path)
    head = tmp_path / "head"
    head_alone = trained_policy(lambda folder, **keys: random_policy("oft", folder, head="l1", **keys), head)
    write_adapter(tmp_path / "with head", head_alone.state_dict().items(), head_alone.cfg)
    with pytest.raises(ConfigError, match="is of another model, which has action_head.model.fc1.bias"):
        random_policy("oft", head, lora_path=str(tmp_path / "with head"))
    # A value head is not needed to act.
    plain = random_policy("oft", tmp_path / "start", **{**FILM, "add_value_head": False}, **path)
    torch.testing.assert_close(act(plain), act(policy), rtol=0, atol=1e-4)
