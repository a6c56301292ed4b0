"""``rlinf list`` prints what recipes can name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.cli.main import main


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("envs", {"gymnasium", "metaworld"}),
        ("models", {"mlp_policy"}),
        ("algorithms", {"adv_type=gae", "adv_type=grpo", "loss_type=actor_critic"}),
        ("engines", {"fsdp", "huggingface", "hf", "vllm", "sglang"}),
        ("recipes", {"gym_cartpole_ppo_mlp"}),
        ("rewards", {"action_penalty", "api", "env", "model"}),
        ("wrappers", {"action_repeat", "frame_stack", "intervention"}),
        ("interveners", {"client", "gello", "keyboard", "scripted", "spacemouse"}),
    ],
)
def test_list_names_each_kind(capsys: pytest.CaptureFixture[str], kind: str, names: set[str]) -> None:
    assert main(["list", kind]) == 0
    assert names <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


def test_without_a_kind_the_kinds_are_listed_with_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    kinds = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert {"algorithms", "engines", "envs", "models", "recipes", "rewards"} <= set(kinds)
    assert kinds["interveners"] == "5: client, gello, keyboard, ..."
    assert "rlinf list KIND" in lines[-1]


def test_list_of_a_missing_folder_fails_cleanly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["list", "recipes", "--config-dir", str(tmp_path / "absent")]) == 1
    assert "--config-dir" in capsys.readouterr().err


def test_broken_plugin_fails_cleanly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_EXT_MODULE", "no_such_plugin")
    assert main(["list", "envs"]) == 1
    assert "RLINF_EXT_MODULE=no_such_plugin" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["algorithms", "engines", "envs", "interveners", "models", "rewards", "wrappers"])
def test_everything_has_a_line_about_it(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert main(["list", kind]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert all(lines.values())
    if kind == "algorithms":
        assert "off-policy" not in lines["adv_type=sft"]
        assert lines["adv_type=reinpp"] != lines["adv_type=reinpp_baseline"]
