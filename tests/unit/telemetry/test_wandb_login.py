"""Whoever is logged in to W&B in any of its ways passes; nobody else is left to find out in the middle of a start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlinf.errors import ConfigError
from rlinf.telemetry.wandb_login import require_wandb_login


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty home of a user who works in an empty folder."""
    for name in [name for name in os.environ if name.startswith("WANDB_") or name == "NETRC"]:
        monkeypatch.delenv(name)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def test_without_a_login_the_ways_out_are_told() -> None:
    with pytest.raises(ConfigError, match=r"logger_backends: .*api\.wandb\.ai.*`wandb login`.*WANDB_MODE=offline"):
        require_wandb_login()


@pytest.mark.parametrize(
    ("name", "value"),
    [("WANDB_API_KEY", "k"), ("WANDB_MODE", "offline"), ("WANDB_MODE", "Disabled"), ("WANDB_IDENTITY_TOKEN_FILE", "f")],
)
def test_variables_that_need_no_login_pass(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    require_wandb_login()


def test_an_online_mode_needs_a_login_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ConfigError):
        require_wandb_login()


def test_a_netrc_file_counts_for_its_own_host(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password of-nobody\n")
    (home / ".netrc").chmod(0o600)
    require_wandb_login()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org:8080")
    with pytest.raises(ConfigError, match=r"wandb\.example\.org"):
        require_wandb_login()
    (home / "other").write_text("machine wandb.example.org login user password of-nobody\n")
    (home / "other").chmod(0o600)
    monkeypatch.setenv("NETRC", str(home / "other"))
    require_wandb_login()


def test_settings_of_the_user_and_of_the_folder_count(home: Path) -> None:
    user = home / ".config" / "wandb"
    user.mkdir(parents=True)
    (user / "settings").write_text("[default]\nmode = offline\n")
    require_wandb_login()
    (home / "work" / "wandb").mkdir()
    (home / "work" / "wandb" / "settings").write_text("[default]\nmode = online\nbase_url = https://own.example.org\n")
    with pytest.raises(ConfigError, match=r"own\.example\.org"):
        require_wandb_login()
