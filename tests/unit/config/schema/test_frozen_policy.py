"""The model of an expert or a teacher is that of the policy, but for what its section says."""

from dataclasses import replace

from rlinf.config.schema.frozen_policy import FrozenPolicyKeys
from rlinf.config.schema.vla import OpenVLAOFTConfig

POLICY = OpenVLAOFTConfig(
    model_type="openvla_oft", model_path="/student", unnorm_key="libero", action_dim=7, is_lora=True
)


def test_a_folder_takes_the_place_of_the_policys_without_its_adapters() -> None:
    found = FrozenPolicyKeys(model_path="/teacher").model_beside(POLICY)
    assert found == replace(POLICY, model_path="/teacher", is_lora=False)


def test_without_a_model_or_folder_of_its_own_it_is_the_policys() -> None:
    assert FrozenPolicyKeys(ckpt_path="/w").model_beside(POLICY) == POLICY
    other = replace(POLICY, model_path="/other", is_lora=False)
    assert FrozenPolicyKeys(model=other).model_beside(POLICY) == other


def test_only_a_checkpoint_is_a_file_that_has_to_be_there() -> None:
    assert FrozenPolicyKeys(model_path="/teacher").required_files() == {}
    assert FrozenPolicyKeys(ckpt_path="/w").required_files() == {"ckpt_path": "/w"}
