"""Tiny policies are asked where the cube is that a sentence names, in what their head for actions sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlinf.data.messages.embodied import Observation
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.vla_policies import as_oft, observations, random_policy
from toolkits.vla.ground_tiny import Grounding, bins_of, features, learner, mean_of, right_share

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

    seen = features(policy, record, torch.Generator().manual_seed(0))
    grounded = taught(seen["prefix"])
    velocity = policy.velocity(policy.prefix(record), record["state"], torch.ones(3, 1, 6, 8), torch.ones(1))
    used = taught(velocity)
    last = "paligemma_with_expert.paligemma.model.language_model.layers.1"
    assert f"{last}.self_attn.v_proj.weight" in grounded
    assert f"{last}.mlp.down_proj.weight" not in used
    assert grounded <= used
    expert = taught(features(policy, record, torch.Generator().manual_seed(0))["actions"])
    assert expert == used - {"action_out_proj.weight", "action_out_proj.bias"}


def test_what_reinforcement_learning_keeps_is_what_learns_here(tmp_path: Path) -> None:
    of_recipe = pi_policy(tmp_path, "pi0", freeze=["vision", "projector", "language"], add_value_head=True)
    policy = learner(of_recipe.cfg)
    assert all(parameter.requires_grad for parameter in policy.parameters())
    assert not any(name.startswith("value_head.") for name, _ in policy.named_parameters())


def scenes() -> tuple[Observation, torch.Tensor]:
    """Return three scenes and where their cubes are, [3, 3, 2]."""
    obs: Observation = {key: obs_of()[key] for key in ("states", "main_images")}
    return obs, torch.tensor([[[0.456, 0.005], [0.506, 0.1], [0.556, -0.1]]]).expand(3, -1, -1)


def test_each_place_of_a_chunk_of_tokens_is_asked_for_the_axis_that_it_chooses(tmp_path: Path) -> None:
    policy = as_oft(random_policy("openvla_oft", tmp_path))
    record = policy.inputs.record(obs_of(), torch.device("cpu"))
    with torch.no_grad():
        hidden = policy.hidden_states(record)
        seen = features(policy, record, torch.Generator())
    actions, numbers = policy.cfg.num_action_chunks, policy.cfg.action_dim
    axes = [[action * numbers, action * numbers + 1] for action in range(actions)]
    torch.testing.assert_close(seen["actions"], hidden[:, torch.tensor(axes)], rtol=0, atol=0)
    torch.testing.assert_close(seen["prefix"], hidden[:, 0], rtol=0, atol=0)
    answers = Grounding(policy, *scenes(), held_out=1).answers(
        torch.tensor([0, 1]), torch.tensor([1, 2]), torch.Generator()
    )
    assert answers["way"].shape == (2, 2 * actions, 24)


def test_heads_begin_by_the_seed_alone(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0")

    def heads(seed: int) -> list[torch.Tensor]:
        torch.rand(1)  # a draw of another
        grounding = Grounding(policy, *scenes(), held_out=1, seed=seed)
        return [*grounding.seen.parameters(), *grounding.heads.parameters()]

    first, again, other = heads(3), heads(3), heads(4)
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))


def test_images_learn_alone_and_then_with_the_whole_model(tmp_path: Path) -> None:
    policy = pi_policy(tmp_path, "pi0")
    grounding = Grounding(policy, *scenes(), held_out=1)

    def learned(run: Callable[[], object]) -> set[str]:
        before = {name: weight.clone() for name, weight in policy.state_dict().items()}
        run()
        return {name for name, weight in policy.state_dict().items() if not torch.equal(weight, before[name])}

    images = learned(lambda: grounding.train_images(2, target=0.0, batch_size=3, lr=1e-3, seed=0))
    words = learned(lambda: grounding.train(2, target=1.1, batch_size=3, lr=1e-3, seed=0))
    assert images
    assert all("vision_tower" in name or "multi_modal_projector" in name for name in images)
    assert images < words
    assert any("gemma_expert" in name for name in words)
    assert any("language_model" in name for name in words)


def test_images_learn_where_cubes_are_and_end_when_they_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    obs, cubes = scenes()
    moved = cubes + torch.tensor([0.0, 0.03, -0.04]).view(3, 1, 1)
    grounding = Grounding(pi_policy(tmp_path, "pi0"), obs, moved, held_out=3)
    before = grounding.measure_images()
    grounding.held_out = 1
    grounding.train_images(100, target=0.0, batch_size=3, lr=3e-3, seed=0)
    grounding.cubes, grounding.held_out = moved[:2], 2
    # Bins are 1.25 and 1.75 cm wide.
    assert grounding.measure_images() < 0.01 < before
    capsys.readouterr()
    grounding.held_out = 1
    assert grounding.train_images(150, target=0.02, batch_size=3, lr=1e-4, seed=0) == 50
    assert capsys.readouterr().out.count("images: off by") == 1


@pytest.mark.parametrize(
    ("right", "steps"), [({"named": 0.8, "way": 0.9}, 50), ({"named": 0.8, "way": 0.7}, 150)], ids=["all", "one not"]
)
def test_questions_end_when_enough_answers_to_each_are_right(
    right: dict[str, float], steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grounding = Grounding(pi_policy(tmp_path, "pi0"), *scenes(), held_out=1)
    monkeypatch.setattr(grounding, "measure", lambda: (right, {}))
    assert grounding.train(150, target=0.8, batch_size=2, lr=1e-3, seed=0) == steps


def test_the_learning_rate_falls_over_the_last_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grounding = Grounding(pi_policy(tmp_path, "pi0"), *scenes(), held_out=1)
    rates: list[float] = []
    step = torch.optim.AdamW.step

    def note(optimizer: torch.optim.AdamW) -> None:
        rates.append(optimizer.param_groups[0]["lr"])
        assert len(rates) <= 130, "it does not end"
        step(optimizer)

    monkeypatch.setattr(torch.optim.AdamW, "step", note)
    # Good enough from step 50 on, and later still: that puts the end off no further.
    monkeypatch.setattr(grounding, "measure", lambda: ({"named": 1.0}, {}))
    assert grounding.train(500, target=0.8, batch_size=2, lr=1.0, seed=0, settle=80) == 130
    assert rates[:50] == [(number + 1) / 50 for number in range(50)]
    assert rates[50:] == [(80 - number) / 80 for number in range(80)]
    # Never good enough: it settles anyway.
    rates.clear()
    monkeypatch.setattr(grounding, "measure", lambda: ({"named": 0.0}, {}))
    assert grounding.train(60, target=0.8, batch_size=2, lr=1.0, seed=0, settle=20) == 80
    assert rates[49:60] == [1.0] * 11
    assert rates[60:] == [(20 - number) / 20 for number in range(20)]


def test_the_expert_is_asked_how_far_the_hand_has_to_go(tmp_path: Path) -> None:
    grounding = Grounding(pi_policy(tmp_path, "pi0"), *scenes(), held_out=1)
    rows, named = torch.tensor([0, 1]), torch.tensor([1, 2])
    truths = grounding.truths(rows, named)
    # Bins of 1.25 and 1.75 cm from (0.40, -0.14); then of 2.5 cm, from the hands at (0.1, -0.2) and (0.5, 0.9).
    assert truths["named"].tolist() == [[8, 13], [12, 2]]
    assert truths["all"].tolist() == [[4, 8, 8, 13, 12, 2]] * 2
    assert truths["way"].tolist() == [[23, 23], [14, 0]]
    first = grounding.answers(rows, named, torch.Generator().manual_seed(0))
    assert {name: tuple(answer.shape) for name, answer in first.items()} == {
        "named": (2, 2, 16),
        "all": (2, 6, 16),
        "way": (2, 2, 24),
    }
    grounding.obs["states"] = grounding.obs["states"] + 0.1
    second = grounding.answers(rows, named, torch.Generator().manual_seed(0))
    assert not torch.equal(first["way"], second["way"])
    assert torch.equal(first["named"], second["named"])


def test_a_policy_learns_scenes_by_heart_and_says_so(tmp_path: Path) -> None:
    grounding = Grounding(pi_policy(tmp_path, "pi0"), *scenes(), held_out=1)
    grounding.train(100, target=1.1, batch_size=9, lr=3e-3, seed=0)
    rows, named = torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2])
    with torch.no_grad():
        answers = grounding.answers(rows, named, torch.Generator().manual_seed(0))
    truths = grounding.truths(rows, named)
    assert torch.equal(answers["named"].argmax(-1), truths["named"])
    assert torch.equal(answers["way"].argmax(-1), truths["way"])


def test_an_answer_is_right_where_the_named_cube_is_the_nearest() -> None:
    cubes = torch.tensor([[[0.45, 0.0], [0.5, 0.1], [0.55, -0.1]]]).expand(2, -1, -1)
    area = torch.tensor([[0.40, -0.14], [0.60, 0.14]])
    answers = torch.full((2, 2, 16), -20.0)
    # Of 16 bins along 0.2 m and 0.28 m, those of the second cube.
    answers[:, 0, 8] = answers[:, 1, 13] = 20.0
    places = mean_of(answers, area)
    torch.testing.assert_close(places, torch.tensor([[0.50625, 0.09625]] * 2))
    assert torch.equal(bins_of(places, area, 16), torch.tensor([[8, 13]] * 2))
    assert right_share(places, cubes, torch.tensor([1, 2])) == 0.5
