"""Requests to the HTTP server of a robot; imports no torch."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from rlinf.errors import ConfigError, EnvironmentFailure

DEFAULT_PORT = 5000
"""Where the published servers listen: Flask's own default."""
_SHOWN = 200
"""Characters of an unexpected answer that a message shows."""


class RobotServer:
    """Sends requests to a robot's server, over one connection that is opened again when the server closes it.

    Args:
        address: ``HOST`` or ``HOST:PORT``.
        timeout_seconds: How long the server may take to accept a connection, and to answer.

    Raises:
        ConfigError: It is no address.
    """

    def __init__(self, address: str, *, timeout_seconds: float) -> None:
        host, has_port, port = address.partition(":")
        if not host or (has_port and not port.isdecimal()):
            raise ConfigError(
                f"cluster.node_groups[].hardware.configs[].robot_ip: received '{address}'; allowed: HOST or HOST:PORT "
                "of the robot's server, without http://. Correct it."
            )
        self.address, self.timeout_seconds = f"{host}:{port or DEFAULT_PORT}", timeout_seconds
        self._connection = http.client.HTTPConnection(host, int(port or DEFAULT_PORT), timeout=timeout_seconds)

    def post(self, route: str, data: Any = None, *, timeout_seconds: float | None = None) -> bytes:
        """Send a request and return the answer.

        Args:
            route: The path.
            data: What is sent as JSON; None sends nothing.
            timeout_seconds: Another limit for this request.

        Raises:
            EnvironmentFailure: The server cannot be reached, is late, or answers that it failed.
        """
        seconds = timeout_seconds or self.timeout_seconds
        try:
            status, answer = self._exchange(route, data, seconds)
        except TimeoutError as error:
            self.close()
            raise self.failure(
                route,
                f"did not answer within {seconds} s. Look at the server's output, and whether its computer is busy; or "
                "raise timeout_seconds in env.*.client_params.",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self.failure(
                route,
                f"no answer ({type(error).__name__}: {error}). Start the robot's server (that of SERL serves its own "
                "computer only, unless started with --flask_url=0.0.0.0), or correct robot_ip in the robot's entry.",
            ) from error
        if status != http.client.OK:
            raise self.failure(
                route,
                f"answered HTTP {status}: {_shown(answer)}. Look at the server's output: whether it has this route, "
                "its controller runs, and its gripper is the one that env.*.client_params names.",
            )
        return answer

    def read(self, route: str) -> Mapping[str, Any]:
        """Send a request and return the JSON object that is the answer.

        Raises:
            EnvironmentFailure: As ``post``, or the answer is something else.
        """
        answer = self.post(route)
        try:
            values = json.loads(answer)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise self.failure(
                route,
                f"answered {_shown(answer)}; expected a JSON object. Check that robot_ip in the robot's entry is its "
                "server, and not another program.",
            )
        return values

    def failure(self, route: str, what: str) -> EnvironmentFailure:
        """Return the error that says what happened with a request to this robot."""
        return EnvironmentFailure(f"the robot {self.address}: {route}: {what}")

    def close(self) -> None:
        """Close the connection; a further request opens it again."""
        self._connection.close()

    def _exchange(self, route: str, data: Any, seconds: float) -> tuple[int, bytes]:
        was_open = self._connection.sock is not None
        try:
            return self._exchange_once(route, data, seconds)
        except (ConnectionResetError, BrokenPipeError):
            if not was_open:
                raise
        # The server has closed the connection since the last request, and has not seen this one.
        self.close()
        return self._exchange_once(route, data, seconds)

    def _exchange_once(self, route: str, data: Any, seconds: float) -> tuple[int, bytes]:
        connection = self._connection
        connection.timeout = seconds
        if connection.sock is not None:
            connection.sock.settimeout(seconds)
        body = b"" if data is None else json.dumps(data).encode()
        connection.request("POST", route, body, {} if data is None else {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()


def _shown(answer: bytes) -> str:
    text = answer.decode(errors="replace").strip()
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
