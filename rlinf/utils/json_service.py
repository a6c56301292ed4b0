"""Queries HTTP services that speak JSON, again where it may help."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rlinf.errors import RewardError
from rlinf.utils.urls import hide_url_secrets, mask_url

FIRST_PAUSE_SECONDS = 0.5
"""Before the second attempt; doubled before each further one."""
MOST_BYTES = 64 << 20
"""Longest response that is read."""


def post_json(
    url: str, body: Any, *, timeout_seconds: float, max_retries: int, headers: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Post ``body`` and return the JSON of the response.

    Args:
        url: Address.
        body: What can be written as JSON.
        timeout_seconds: Time of an attempt, from connecting to the last byte of the response.
        max_retries: Further attempts after one that failed.
        headers: To be sent with the request.

    Raises:
        RewardError: The service did not answer in time at any attempt, or refused the request; the message shows the
            address without its secrets.
    """
    data = json.dumps(body).encode()
    attempts = max_retries + 1
    for attempt in range(attempts):
        if attempt:
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            return _attempt(url, data, headers, timeout_seconds)
        except (OSError, http.client.HTTPException) as error:  # refused, reset, timed out, or a status of failure
            failure: Exception = error
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:  # it would be refused again
                break
        except (ValueError, RecursionError) as error:
            failure = error
    reason = hide_url_secrets(url, f"{type(failure).__name__}: {failure}")
    # Not "from failure": its own message may hold the secrets.
    raise RewardError(
        f"{mask_url(url)} did not answer in attempt {attempt + 1} of {attempts}, within {timeout_seconds:g} s: "
        f"{reason}. See whether the service runs, or raise timeout_seconds or max_retries."
    ) from None


def _attempt(url: str, data: bytes, headers: Mapping[str, str], timeout_seconds: float) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    opener = urllib.request.build_opener(*_handlers(time.monotonic() + timeout_seconds))
    with opener.open(request, timeout=timeout_seconds) as answer:
        text = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"the response is longer than {MOST_BYTES} bytes")
    return json.loads(text)


def _handlers(deadline: float) -> tuple[urllib.request.BaseHandler, ...]:
    """Return handlers whose connections end at a time of the monotonic clock; urllib's bound each single read."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **keys: Any) -> None:
            super().__init__(sock, *args, **keys)
            self.fp = io.BufferedReader(_DeadlineReader(sock, self.fp.detach(), deadline))

    class Plain(http.client.HTTPConnection):
        response_class = Response

    class Secure(http.client.HTTPSConnection):
        response_class = Response

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Plain, request)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Secure, request, context=ssl.create_default_context())

    return PlainHandler(), SecureHandler()


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, deadline: float) -> None:
        self._sock = sock
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
