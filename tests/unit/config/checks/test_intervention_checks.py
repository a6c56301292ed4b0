"""Interventions that cannot be learned from, or would falsify an evaluation, are told apart with their remedy."""

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

RECIPE = "metaworld_reach_hgdagger_mlp"
ENTRY = "{name: intervention, intervener: {intervener_type: scripted, policy: metaworld, stall_steps: 5}}"


@pytest.mark.parametrize(
    ("recipe", "overrides", "remedy"),
    [
        (RECIPE, ["env.train.wrappers=[]"], "no operator intervenes; loss_type=embodied_hgdagger"),
        ("metaworld_reach_ppo_mlp", [f"env.train.wrappers=[{ENTRY}]"], "actions that the policy itself drew"),
        (RECIPE, [f"env.eval.wrappers=[{ENTRY}]"], "env.eval.wrappers: holds 'intervention'; it would count help"),
        (
            RECIPE,
            [f"env.train.wrappers=[{ENTRY},{{name: action_repeat, num_repeats: 2}}]"],
            "'intervention' stands before 'action_repeat'",
        ),
        (
            "gym_mountain_car_rlpd_mlp",
            ["algorithm.demo_buffer.interventions=true"],
            "algorithm.demo_buffer.interventions: received True; no operator intervenes",
        ),
        (
            "gym_mountain_car_rlpd_mlp",
            ["algorithm.demo_buffer.capacity=5"],
            "algorithm.demo_buffer.capacity: received 5; not used without interventions",
        ),
        (
            RECIPE,
            [
                "env.train.wrappers=[{name: intervention, intervener: {intervener_type: scripted, policy: metaworld}}]",
            ],
            "would never take over",
        ),
        (
            RECIPE,
            ["env.train.wrappers=[{name: intervention, intervener: {intervener_type: keyboard, hold_steps: 2}}]"],
            "env.train.wrappers[0].intervener.hold_steps: not used by intervener_type=keyboard",
        ),
    ],
)
def test_contradictions_name_their_remedy(recipe: str, overrides: list[str], remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(recipe, overrides))
    assert remedy in str(caught.value)


def test_a_leader_arm_has_the_joints_of_the_robot() -> None:
    arm = "{intervener_type: gello, port: /dev/ttyUSB0, joint_offsets: [0, 0], joint_signs: [1, -1], "
    entry = f"env.train.wrappers=[{{name: intervention, intervener: {arm} gripper_closed_degrees: 0}}}}]"
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(RECIPE, [entry]))
    for text in ("joint_offsets of the intervener has 2 numbers", "joint_signs", "are both 0"):
        assert text in str(caught.value)


def test_demonstrations_may_be_collected_with_somebody_at_a_device() -> None:
    collecting = ["runner.only_eval=true", "env.eval.data_collection.enabled=true"]
    person = "env.eval.wrappers=[{name: intervention, intervener: {intervener_type: spacemouse}}]"
    cfg = validate_cfg(load_recipe(RECIPE, [*collecting, person]))
    assert cfg.env.eval.wrappers[0].intervener.dead_zone == 0.1
