"""What ``rlinf serve`` refuses before it loads anything, and what it hands on."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.cli.main import main
from rlinf.hybrid_engines.serving import recipe_server


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(recipe_server, "serve_recipe", lambda cfg, **options: calls.append((cfg, options)))
    monkeypatch.delenv("RLINF_SERVER_TOKEN", raising=False)
    return calls


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_needs_no_token(served: list[Any], host: str) -> None:
    assert main(["serve", "tiny_math_grpo", "rollout.max_running_requests=7", "--host", host, "--port", "0"]) == 0
    ((cfg, options),) = served
    assert (cfg.rollout.rollout_backend, cfg.rollout.max_running_requests) == ("hf", 7)
    assert (options["host"], options["port"], options["rank"], options["token"]) == (host, 0, 0, "")


def test_others_need_a_token(
    served: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["serve", "tiny_math_grpo", "--host", "0.0.0.0", "--device", "cpu", "--rank", "2"]
    assert main(arguments) == 1
    assert "set RLINF_SERVER_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("RLINF_SERVER_TOKEN", "secret")
    assert main(arguments) == 0
    assert (served[0][1]["token"], served[0][1]["rank"], str(served[0][1]["device"])) == ("secret", 2, "cpu")


def test_a_recipe_without_an_engine_is_refused(served: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "gym_cartpole_ppo_mlp"]) == 1
    assert "no generation engine" in capsys.readouterr().err
    assert not served
