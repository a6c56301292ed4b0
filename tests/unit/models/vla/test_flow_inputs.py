"""Prompts and states of pi-0 and pi-0.5 are the published ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rlinf.errors import ConfigError, EnvironmentFailure
from rlinf.models.vla.flow_inputs import PiInputs, state_bins
from tests.unit.models.vla.pi_policies import STATISTICS, pi_policy
from tests.unit.models.vla.vla_policies import observations

pytest.importorskip("transformers")
OBS = observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


def test_states_in_words_have_the_published_bins() -> None:
    numbers = np.linspace(-1.5, 1.5, 101)
    expected = np.digitize(numbers, bins=np.linspace(-1, 1, 256 + 1)[:-1]) - 1
    assert state_bins(torch.from_numpy(numbers)) == expected.tolist()


@pytest.mark.parametrize("variant", ["pi0", "pi05"])
def test_states_are_normalised_and_padded(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    state = policy.inputs.record(OBS, policy.device)["state"]
    numbers = OBS["states"].numpy()
    if variant == "pi0":
        expected = (numbers - np.array(STATISTICS["mean"])) / (np.array(STATISTICS["std"]) + 1e-6)
    else:
        low, high = np.array(STATISTICS["q01"]), np.array(STATISTICS["q99"])
        expected = (numbers - low) / (high - low + 1e-6) * 2.0 - 1.0
    np.testing.assert_allclose(state[:, :3].numpy(), expected, atol=1e-6)
    assert state.shape == (3, 8)
    assert not state[:, 3:].any()


def test_prompts_are_padded_behind(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0")
    record = policy.inputs.record(OBS, policy.device)
    lengths = record["token_mask"].sum(1).tolist()
    assert lengths[2] > lengths[0]
    for row, length in enumerate(lengths):
        assert record["token_mask"][row].tolist() == [True] * length + [False] * (32 - length)


def test_the_state_of_pi05_is_among_the_words(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi05")
    seen: list[str] = []
    tokenizer = policy.inputs._tokenizer
    policy.inputs._tokenizer = lambda text, **keys: seen.append(text) or tokenizer(text, **keys)
    policy.inputs.encode(["put the_cup\ndown "], torch.tensor([[0.0, -1.0, 0.999]]))
    assert seen == ["Task: put the cup down, State: 128 0 255;\nAction: "]


@pytest.mark.parametrize(("variant", "is_read"), [("pi0", None), ("pi05", False)])
def test_without_the_state_a_prompt_is_the_task_and_the_end_of_its_line(
    variant: str, is_read: bool | None, tmp_path: Path
) -> None:
    policy = pi_policy(tmp_path, variant, discrete_state_input=is_read)
    seen: list[str] = []
    tokenizer = policy.inputs._tokenizer
    policy.inputs._tokenizer = lambda text, **keys: seen.append(text) or tokenizer(text, **keys)
    policy.inputs.encode(["put the_cup\ndown "], torch.tensor([[0.0, -1.0, 0.999]]))
    assert seen == ["put the cup down", "\n"]


def test_states_in_words_are_padded_in_folders_of_lerobot_alone(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi05")
    inputs = PiInputs(policy.cfg, tmp_path, image_size=28, padded_dim=8, pads_words=True)
    state, seen, tokenizer = torch.tensor([0.0, -1.0, 0.999]), [], policy.inputs._tokenizer
    inputs._tokenizer = lambda text, **keys: seen.append(text) or tokenizer(text, **keys)
    inputs.tokens("lift", state)
    assert seen == ["Task: lift, State: 128 0 255 128 128 128 128 128;\nAction: "]


@pytest.mark.parametrize(("variant", "length"), [("pi0", 48), ("pi05", 200)])
def test_prompts_are_as_long_as_those_of_openpi(variant: str, length: int, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant, max_prompt_length=None)
    assert policy.inputs.record(OBS, policy.device)["token_ids"].shape == (3, length)


def test_a_prompt_that_is_too_long_says_how_long(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0", max_prompt_length=3)
    with pytest.raises(ConfigError, match="max_prompt_length: received 3; .* Set it to"):
        policy.inputs.record(OBS, policy.device)


@pytest.mark.parametrize("key", ["states", "task_descriptions", "main_images"])
def test_an_environment_that_shows_less_is_an_error(key: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0")
    with pytest.raises(EnvironmentFailure, match=f"for '{key}'"):
        policy.inputs.record({name: value for name, value in OBS.items() if name != key}, policy.device)
