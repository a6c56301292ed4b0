"""Functions of the user's as rewards."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import reward_functions

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import FunctionRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import ConfigError


def make(function: str, **keys: str | float) -> Any:
    cfg = FunctionRewardConfig(reward_type="function", function=f"reward_functions:{function}", **keys)
    return get_reward_class("function")(cfg)


def asked(*texts: str) -> list[RewardQuery]:
    return [RewardQuery(prompt="", response=text) for text in texts]


@pytest.mark.parametrize(("function", "call"), [("length", "answer"), ("lengths", "batch"), ("slow_length", "answer")])
def test_functions_are_called_as_they_are_made(function: str, call: str) -> None:
    assert make(function, call=call)(asked("a", "bb", "")) == [1.0, 2.0, 0.0]


def test_coroutines_run_side_by_side_up_to_the_bound() -> None:
    reward_functions.most_running.clear()
    make("slow_length", max_calls=3)(asked(*"abcdefgh"))
    assert max(reward_functions.most_running) == 3


def test_what_a_function_raises_is_counted_and_logged_once_per_kind(caplog: pytest.LogCaptureFixture) -> None:
    reward = make("mean", fallback_reward=-0.5)
    with caplog.at_level(logging.WARNING):
        logging.getLogger("rlinf").addHandler(caplog.handler)
        assert reward(asked("", "", "text", "exit", "absent", "absent")) == [-0.5] * 6
        logging.getLogger("rlinf").removeHandler(caplog.handler)
    assert reward.failures == {"ZeroDivisionError": 2, "ValueError": 1, "RuntimeError": 1, "KeyError": 2}
    assert [record.message.split(" ")[2] for record in caplog.records] == [
        "ZeroDivisionError:",
        "ValueError:",
        "RuntimeError:",
        "KeyError:",
    ]


def test_a_coroutine_that_would_end_the_process_earns_the_fallback() -> None:
    reward = make("leaves", fallback_reward=-1.0)
    assert reward(asked("a", "b")) == [-1.0, -1.0]
    assert reward.failures == {"RuntimeError": 2}


def test_a_function_that_never_returns_is_left_to_itself() -> None:
    reward = make("never", timeout_seconds=0.05, fallback_reward=-1.0)
    assert reward(asked("a", "b")) == [-1.0, -1.0]
    assert reward.failures == {"TimeoutError": 2}


def test_a_batch_that_fails_earns_the_fallback_and_one_of_another_length_is_passed_on() -> None:
    assert make("length", call="batch", fallback_reward=2.0)(asked("a", "b")) == [2.0, 2.0]
    assert make("one_for_all", call="batch")(asked("a", "b")) == [1.0]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("reward_functions:absent", "absent"),
        ("absent_module:f", "absent_module"),
        ("length", "package.module:function"),
        ("reward_functions:not_a_function", "no function but a int"),
    ],
)
def test_a_function_that_is_not_there_is_a_fault_of_the_recipe(path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        get_reward_class("function")(FunctionRewardConfig(reward_type="function", function=path))
