"""Asks HTTP services that speak JSON, again where it may help."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

from rlinf.errors import RewardError

FIRST_PAUSE_SECONDS = 0.5
"""Before the second attempt; doubled before each further one."""
MOST_BYTES = 64 << 20
"""Longest answer that is read."""


def post_json(url: str, body: Any, *, timeout_seconds: float, max_retries: int) -> Any:
    """Post ``body`` and return what the service answers.

    Args:
        url: Address.
        body: What can be written as JSON.
        timeout_seconds: Time that an answer may take.
        max_retries: Further attempts after one that failed.

    Raises:
        RewardError: The service did not answer in time at any attempt, or refused what it was asked.
    """
    data = json.dumps(body).encode()
    attempts = max_retries + 1
    for attempt in range(attempts):
        if attempt:
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            return _attempt(url, data, timeout_seconds)
        except (OSError, http.client.HTTPException) as error:  # refused, reset, timed out, or a status of failure
            failure: Exception = error
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:  # it would be refused again
                break
        except (ValueError, RecursionError) as error:
            failure = error
    raise RewardError(
        f"{url} did not answer in attempt {attempt + 1} of {attempts}, within {timeout_seconds:g} s: "
        f"{type(failure).__name__}: {failure}. See whether the service runs, or raise the reward's timeout_seconds or "
        "max_retries."
    ) from failure


def unexpected_answer(url: str, answer: Any, count: int) -> RewardError:
    """Return the error for an answer that does not hold ``count`` rewards."""
    return RewardError(
        f'{url} answered {str(answer)[:200]}; expected {{"rewards": [{count} numbers]}}. Correct the service.'
    )


def _attempt(url: str, data: bytes, timeout_seconds: float) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:
        return json.loads(answer.read(MOST_BYTES))
