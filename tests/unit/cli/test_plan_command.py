"""``rlinf plan`` validates offline, needs nothing heavy, and shows placement and sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlinf.cli.main import main
from rlinf.config import build_config, load_recipe, validate_cfg

RECIPE = "gym_cartpole_ppo_mlp"
LARGE = (
    "cluster.num_nodes=128",
    "cluster.component_placement={actor: all, rollout: all, env: all}",
    "env.train.total_num_envs=4096",
    "env.train.max_steps_per_rollout_epoch=128",
    "env.train.rollout_epoch=1",
    "env.train.num_env_processes=0",
    "env.eval.total_num_envs=1024",
    "env.eval.num_env_processes=0",
    "actor.global_batch_size=65536",
    "actor.micro_batch_size=64",
)


def test_plan_shows_placement_and_arithmetic(capsys):
    assert main(["plan", RECIPE, *LARGE, "--accelerators-per-node", "8", "algorithm.update_epoch=2"]) == 0
    text = capsys.readouterr().out
    assert "nodes 0-127 (128): 8 accelerators each" in text
    assert "4096 (4 per env worker)" in text
    assert "524288 = 128 chunks x 4096 environments" in text
    assert "16 = 524288 / global_batch_size 65536 x update_epoch 2" in text


def test_plan_of_a_thousand_devices_loads_neither_torch_nor_ray():
    script = (
        "import sys\nfrom rlinf.cli.main import main\n"
        f"assert main(['plan', '{RECIPE}', '--accelerators-per-node', '8', *{LARGE!r}]) == 0\n"
        "print(sorted({'torch', 'ray', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_plan_without_known_accelerators_says_so(capsys):
    assert main(["plan", RECIPE]) == 0
    assert "--accelerators-per-node" in capsys.readouterr().out


def test_plan_with_impossible_placement_fails_cleanly(capsys):
    code = main(["plan", RECIPE, "--accelerators-per-node", "2", "cluster.component_placement.actor=0-7"])
    captured = capsys.readouterr()
    assert code == 1
    assert "cluster.component_placement.actor" in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_overrides_may_stand_on_both_sides_of_options(capsys):
    assert main(["plan", "--resolved", RECIPE, "actor.seed=5", "--accelerators-per-node", "0", "env.train.seed=6"]) == 0
    resolved = yaml.safe_load(capsys.readouterr().out.partition("\ncluster:")[2].join(["cluster:", ""]))
    cfg = build_config(resolved)
    assert cfg == validate_cfg(load_recipe(RECIPE, ["actor.seed=5", "env.train.seed=6"]))


def test_unknown_option_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["plan", RECIPE, "--resolve-all"])
    assert caught.value.code == 2
    assert "--resolve-all" in capsys.readouterr().err


def test_own_folder_of_recipes(capsys, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(f"defaults: [{RECIPE}, _self_]\nrunner: {{max_epochs: 77}}\n")
    assert main(["plan", "mine", "--config-dir", str(tmp_path)]) == 0
    assert "77 steps" in capsys.readouterr().out


def test_an_off_policy_plan_counts_updates_from_the_replay(capsys):
    assert main(["plan", "gym_pendulum_sac_mlp"]) == 0
    text = capsys.readouterr().out
    assert "64 of the critics = update_epoch 64, each on a batch from the replay" in text
    assert "14976 optimizer steps, 14976 environment steps" in text


def test_a_plan_of_a_language_model_counts_responses(capsys):
    keys = ("algorithm.update_epoch=2", "runner.max_epochs=5", "algorithm.sampling_params.max_new_tokens=8")
    assert main(["plan", "tiny_math_grpo", *keys, "--accelerators-per-node", "0"]) == 0
    text = capsys.readouterr().out
    assert "256 on 1 engine(s), 4 responses to each" in text
    assert "1024, of up to 8 tokens each" in text
    assert "2 = 1024 / global_batch_size 1024 x update_epoch 2" in text
    assert "up to 4096 tokens on each actor rank" in text
    assert "5 steps, 10 optimizer steps" in text
    assert "every 10 steps, greedily, on results/tiny_math/val.jsonl" in text
    assert "log-probabilities" not in text
    keys = ("+inference={}", "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}")
    assert main(["plan", "tiny_math_grpo", *keys, "--accelerators-per-node", "0"]) == 0
    text = capsys.readouterr().out
    assert "by 1 inference rank(s), up to 4096 tokens in a pass, while further responses are generated" in text
    keys = ("runner.enable_dynamic_batch_size=false", "~runner.max_tokens_per_mbs", "runner.val_samples=4")
    assert main(["plan", "tiny_math_grpo", *keys]) == 0
    text = capsys.readouterr().out
    assert "64 responses on each actor rank" in text
    assert "every 10 steps, 4 responses to each prompt" in text
    assert "replaced" not in text
    assert main(["plan", "qwen2_5_7b_dapo_math"]) == 0
    assert "groups with zero advantages, until 1536 prompts have been submitted in a step" in capsys.readouterr().out


def test_a_plan_of_fine_tuning_counts_samples(capsys):
    assert main(["plan", "tiny_math_sft", "algorithm.update_epoch=2", "--accelerators-per-node", "0"]) == 0
    text = capsys.readouterr().out
    assert "512 = global_batch_size 256 x update_epoch 2, of up to 24 tokens each" in text
    assert "16 pass(es) over the data, counted when it has been read" in text
    assert "loss and token accuracy, and responses on 1 engine(s): greedily, on results/tiny_math/val.jsonl" in text
    assert main(["plan", "qwen2_5_1_5b_sft", "runner.max_steps=7", "--accelerators-per-node", "8"]) == 0
    text = capsys.readouterr().out
    assert "7 steps, 7 optimizer steps" in text
    assert "every 20 steps, loss and token accuracy, on openai/gsm8k:main" in text


def test_plan_lists_what_this_machine_lacks_beside_the_plan(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(["plan", "gym_mountain_car_rlpd_mlp"]) == 0
    told = capsys.readouterr()
    assert "gym_mountain_car_rlpd_mlp: valid" in told.out
    assert "cannot be run on this machine" in told.err
    assert "algorithm.demo_buffer.load_path" in told.err


def test_the_command_is_there_without_its_script():
    run = subprocess.run([sys.executable, "-m", "rlinf", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("rlinf ")


@pytest.mark.parametrize(("value", "code"), [("topsecret", 0), ("[topsecret]", 1)])
def test_values_of_environment_variables_are_not_shown(capsys, value, code):
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
def test_keys_and_passwords_are_not_shown(capsys, override, code):
    assert main(["plan", "tiny_math_grpo", "--resolved", override]) == code
    told = capsys.readouterr()
    assert "reward" in told.out + told.err
    assert "topsecret" not in told.out + told.err
