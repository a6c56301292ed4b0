"""What is shown of keys and passwords, and what a run's folder keeps of them."""

from __future__ import annotations

import pytest

from rlinf.config.sections import known_paths
from rlinf.utils.secrets import hide_for_reader, hide_for_record, hide_in_argument, is_secret_key, mask_addresses

URL = "https://me:word@host/score?api_key=topsecret&model=a"


def test_a_reader_sees_no_variable_and_no_key() -> None:
    recipe = {
        "env_vars": [{"WANDB_API_KEY": "topsecret", "NCCL_DEBUG": "INFO"}],
        "reward": {"url": URL, "api_key": "topsecret", "password": None},
        "data": {"prompt_key": "question", "max_tokens": 3},
    }
    assert hide_for_reader(recipe) == {
        "env_vars": [{"WANDB_API_KEY": "<hidden>", "NCCL_DEBUG": "<hidden>"}],
        "reward": {"url": "https://***@host/score?api_key=***&model=***", "api_key": "<hidden>", "password": None},
        "data": {"prompt_key": "question", "max_tokens": 3},
    }


def test_a_record_keeps_what_is_no_key() -> None:
    recipe = {
        "node_groups": [{"env_vars": [{"AWS_ACCESS_KEY_ID": "topsecret", "HF_TOKEN": 7, "NCCL_DEBUG": "INFO"}]}],
        "reward": {"url": URL, "api_key": "topsecret"},
        "data": {"prompt_key": "question", "max_tokens": 3},
    }
    assert hide_for_record(recipe) == {
        "node_groups": [
            {"env_vars": [{"AWS_ACCESS_KEY_ID": "<hidden>", "HF_TOKEN": "<hidden>", "NCCL_DEBUG": "INFO"}]}
        ],
        "reward": {"url": "https://***@host/score?api_key=***&model=a", "api_key": "<hidden>"},
        "data": {"prompt_key": "question", "max_tokens": 3},
    }


@pytest.mark.parametrize(
    ("argument", "kept"),
    [
        ("--config-name", "--config-name"),
        ("data.prompt_key=question", "data.prompt_key=question"),
        ("reward.api_key=topsecret", "reward.api_key=<hidden>"),
        (f"reward.url={URL}", "reward.url=https://***@host/score?api_key=***&model=a"),
        ("rewards={a: {url: 'http://h/?token=topsecret'}}", "rewards={a: {url: 'http://h/?token=***'}}"),
        (
            "groups=[{env_vars: [{WANDB_API_KEY: topsecret, NCCL_DEBUG: INFO}, {HF_TOKEN: 'top secret'}]}]",
            "groups=[{env_vars: [{WANDB_API_KEY: <hidden>, NCCL_DEBUG: INFO}, {HF_TOKEN: <hidden>}]}]",
        ),
    ],
)
def test_a_command_line_is_kept_without_keys(argument: str, kept: str) -> None:
    assert hide_in_argument(argument) == kept


def test_a_text_that_is_no_address_is_no_error() -> None:
    assert mask_addresses("see http://[host and http://a/b") == "see <hidden> and http://a/b"


def test_no_section_has_the_name_of_a_secret() -> None:
    """A record without it would be no recipe: the run could not be evaluated."""
    sections = {path[:place] for path in known_paths() for place, sign in enumerate(path) if sign == "."}
    assert "actor.model" in sections
    assert [section for section in sorted(sections) if is_secret_key(section.removesuffix("[]"))] == []
