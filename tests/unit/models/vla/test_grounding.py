"""Tiny policies are asked where the cube is that a sentence names, in what their head for actions sees."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf.data.messages.embodied import Observation
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import observations
from toolkits.vla.ground_tiny import Grounding, evaluate, features

pytest.importorskip("transformers")
both = pytest.mark.parametrize("variant", ["pi0", "pi05"])


def obs_of() -> Observation:
    """Return three observations with states of three numbers."""
    return observations() | {"states": torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])}


@both
def test_grounding_teaches_nothing_that_the_expert_does_not_see(variant: str, tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, variant)
    record = policy.inputs.record(obs_of(), torch.device("cpu"))

    def taught(output: torch.Tensor) -> set[str]:
        policy.zero_grad()
        output.square().sum().backward()
        return {name for name, weight in policy.named_parameters() if weight.grad is not None and weight.grad.any()}

    grounded = taught(features(policy, record))
    seen = taught(policy.velocity(policy.prefix(record), record["state"], torch.ones(3, 1, 6, 8), torch.ones(1)))
    last = "paligemma_with_expert.paligemma.model.language_model.layers.1"
    assert f"{last}.self_attn.v_proj.weight" in grounded
    assert f"{last}.mlp.down_proj.weight" not in seen
    assert grounded <= seen


@pytest.mark.parametrize(("target", "steps"), [(0.0, 100), (1.1, 150)])
def test_questions_end_when_enough_answers_are_right(target: float, steps: int, tmp_path: Path) -> None:
    obs: Observation = {key: obs_of()[key] for key in ("states", "main_images")}
    cubes = torch.tensor([[[0.45, 0.0], [0.5, 0.1], [0.55, -0.1]]]).expand(3, -1, -1)
    grounding = Grounding(pi_policy(tmp_path, "pi0"), obs, cubes, held_out=1)
    assert grounding.train(150, target=target, batch_size=2, lr=1e-3, seed=0) == steps


def test_an_answer_is_right_where_the_named_cube_is_the_nearest() -> None:
    cubes = torch.tensor([[[0.45, 0.0], [0.5, 0.1], [0.55, -0.1]]]).expand(2, -1, -1)
    answers = torch.full((2, 2, 16), -20.0)
    # Of 16 bins along 0.2 m and 0.28 m, those of the second cube.
    answers[:, 0, 8] = answers[:, 1, 13] = 20.0
    assert evaluate(answers, cubes, torch.tensor([1, 2])) == 0.5
