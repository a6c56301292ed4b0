"""The ``rlinf`` command: it needs no script, and shows no secrets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlinf.cli.main import main

RECIPE = "gym_cartpole_ppo_mlp"


def test_the_command_is_there_without_its_script() -> None:
    run = subprocess.run([sys.executable, "-m", "rlinf", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("rlinf ")


@pytest.mark.parametrize(("value", "code"), [("topsecret", 0), ("[topsecret]", 1)])
def test_values_of_environment_variables_are_not_shown(
    capsys: pytest.CaptureFixture[str], value: str, code: int
) -> None:
    entry = f"{{node_ranks: 0, env_vars: [{{WANDB_API_KEY: {value}}}]}}"
    group = f"cluster.node_groups=[{{label: a, node_ranks: 0, env_configs: [{entry}]}}]"
    assert main(["plan", RECIPE, "--resolved", group]) == code
    told = capsys.readouterr()
    assert "WANDB_API_KEY" in told.out + told.err
    assert "topsecret" not in told.out + told.err


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("+reward.rewards.api={reward_type: text_api, url: 'http://me:topsecret@host/?api_key=topsecret'}", 0),
        ("+reward.rewards.api={reward_type: text_api, url: 'ftp://me:topsecret@host/?api_key=topsecret'}", 1),
        ("+reward.rewards.api={reward_type: text_api, url: ['http://host/?api_key=topsecret']}", 1),
        ("+reward.rewards.api={reward_type: text_api, url: 'http://host', api_key: topsecret}", 1),
        ("reward.rewards='http://host/?api_key=topsecret'", 1),
        ("reward.api_key=topsecret,topsecret", 1),
        ("reward.api_key=(topsecret", 1),
        ("reward.api_key={topsecret", 1),
        (f"+reward.rewards.api={{reward_type: text_api, url: ['http://me:topsecret{60 * '_'}@host']}}", 1),
    ],
)
def test_keys_and_passwords_are_not_shown(capsys: pytest.CaptureFixture[str], override: str, code: int) -> None:
    assert main(["plan", "tiny_math_grpo", "--resolved", override]) == code
    told = capsys.readouterr()
    assert "reward" in told.out + told.err
    assert "topsecret" not in told.out + told.err
