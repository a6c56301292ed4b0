"""``reward_type: function``: a function of the user's."""

from __future__ import annotations

import asyncio
import collections
import inspect
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rlinf.algorithms.rewards.base import ON_CPU, RewardContext, TextReward
from rlinf.config.schema.reward import FunctionRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.utils.logging import get_logger
from rlinf.utils.user_functions import import_function

_log = get_logger("workers.reward.function")


class FunctionReward(TextReward):
    """Calls ``package.module:function`` with each ``RewardQuery``, or with a list of them; it may be ``async``.

    An exception is counted in ``failures`` by its kind, logged once per kind, and gives ``fallback_reward``; so does a
    call that takes longer than ``timeout_seconds``.

    Args:
        cfg: Its keys.
        context: See ``Reward``.

    Raises:
        ConfigError: There is no such function.
    """

    cfg: FunctionRewardConfig

    def __init__(self, cfg: FunctionRewardConfig, context: RewardContext = ON_CPU) -> None:
        super().__init__(cfg, context)
        self.failures: collections.Counter[str] = collections.Counter()
        self._function = import_function(cfg.function, "reward.rewards.*.function")
        self._is_async = inspect.iscoroutinefunction(self._function)
        self._lock = threading.Lock()

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        if self.cfg.call == "batch":
            answers = self._call_all([list(queries)])[0]
            return [self.cfg.fallback_reward] * len(queries) if answers is None else answers
        answers = self._call_all(list(queries))
        return [self.cfg.fallback_reward if answer is None else answer for answer in answers]

    def _call_all(self, arguments: list[Any]) -> list[Any]:
        """Return what the function gives for each argument, None where it failed."""
        if self._is_async:
            return asyncio.run(self._await_all(arguments))
        return [self._guarded(argument) for argument in arguments]

    async def _await_all(self, arguments: list[Any]) -> list[Any]:
        running = asyncio.Semaphore(self.cfg.max_calls)

        async def call(argument: Any) -> Any:
            async with running:
                try:
                    return self._numbers(await asyncio.wait_for(self._awaited(argument), self.cfg.timeout_seconds))
                except Exception as error:  # noqa: BLE001 - the boundary around a user's code
                    self._note(error)
                    return None

        return list(await asyncio.gather(*map(call, arguments)))

    async def _awaited(self, argument: Any) -> Any:
        try:
            return await self._function(argument)
        except SystemExit as error:  # would end the event loop, and with it every other call
            raise RuntimeError(f"SystemExit: {error}") from error

    def _guarded(self, argument: Any) -> Any:
        try:
            return self._numbers(_within(self.cfg.timeout_seconds, self._function, argument))
        except Exception as error:  # noqa: BLE001 - the boundary around a user's code
            self._note(error)
            return None

    def _numbers(self, value: Any) -> float | list[float]:
        return [float(entry) for entry in value] if self.cfg.call == "batch" else float(value)

    def _note(self, error: Exception) -> None:
        kind = type(error).__name__
        with self._lock:
            self.failures[kind] += 1
            is_first = self.failures[kind] == 1
        if is_first:
            _log.warning(
                "%s raised %s: %s. Uses fallback_reward=%g; further %s are not logged.",
                self.cfg.function,
                kind,
                error,
                self.cfg.fallback_reward,
                kind,
                exc_info=error,
            )


def _within(seconds: float, function: Callable[[Any], Any], argument: Any) -> Any:
    """Return what a function returns; a thread that is late is left to itself, as nothing can end it.

    Raises:
        TimeoutError: It did not return in time.
    """
    outcome: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            outcome.put((function(argument), None))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            outcome.put((None, error))

    threading.Thread(target=call, daemon=True, name="reward-function").start()
    try:
        value, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"did not return within {seconds:g} s") from None
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    return value
