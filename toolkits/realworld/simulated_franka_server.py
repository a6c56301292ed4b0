"""A simulated controller behind the HTTP protocol of SERL's and HIL-SERL's robot server: a driver can be tried on it.

    python toolkits/realworld/simulated_franka_server.py --port 5000

The arm is the kinematic stand-in ``DummyFranka``, moving on the wall clock; its joints are not simulated: they are 0.
It answers as ``franka_server.py`` of HIL-SERL does: queries with JSON, commands with a text.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from rlinf.cli.entry import run_and_report
from rlinf.config.schema.realworld import DummyFrankaConfig
from rlinf.envs.realworld.dummy import DummyFranka
from rlinf.envs.realworld.franka_server import GRIPPERS
from rlinf.envs.realworld.poses import pose_from_euler
from rlinf.envs.realworld.robot_server import DEFAULT_PORT

START = (0.5, 0.0, 0.4, 3.1416, 0.0, 0.0)
"""Where the arm is at first, and after a reset of its joints: metres and radians."""
_TICK_SECONDS = 0.01
_LONGEST_MOTION_SECONDS = 30.0
"""All motions end within it, so that no more has to be made up for after a pause."""
# Of the Franka hand: width that it opens to, that it reports as 1, and that a count of /move_gripper is.
_WIDTH_METERS, _COUNT_METERS = 0.08, 1.0 / 2550.0
# Of Robotiq's: counts that it closes to, and that HIL-SERL's /open_gripper opens to.
_ROBOTIQ_CLOSED, _ROBOTIQ_OPENED = 255, 175
_AXES = [f"{sign}{axis}" for sign in ("", "neg_") for axis in "xyz"]
_PARAMETERS = {
    *(f"{kind}_{what}" for kind in ("translational", "rotational") for what in ("stiffness", "damping", "Ki")),
    *(f"{kind}_clip_{axis}" for kind in ("translational", "rotational") for axis in _AXES),
    *("nullspace_stiffness", "joint1_nullspace_stiffness"),
}


class SimulatedArm:
    """The arm and its gripper; every call first lets the time pass that has passed since the one before.

    Args:
        gripper: ``franka``, ``robotiq`` or ``none``.
        speed: Seconds of the arm in a second.
    """

    def __init__(self, *, gripper: str = "franka", speed: float = 1.0) -> None:
        self.gripper, self.speed = gripper, speed
        self.parameters: dict[str, float] = {}
        self.needs_clear, self.is_active, self.has_grasped = False, gripper != "robotiq", False
        start = pose_from_euler(START)
        self.dummy = DummyFranka(DummyFrankaConfig(), start=start, target=start, num_cameras=0, image_size=1)
        self._lock = threading.Lock()
        self._last = time.monotonic()

    def answer(self, route: str, data: Any) -> dict[str, Any] | str | None:
        """Answer a request; None where there is no such route.

        Raises:
            KeyError: The request lacks something, or asks for something that is not there.
            TypeError: It holds something of another kind.
            ValueError: The controller does not accept it.
        """
        with self._lock:
            self._pass_time()
            if route.startswith("/get"):
                return self._report(route.removeprefix("/get"))
            commands: dict[str, Callable[[Any], str]] = {
                "/pose": self._move,
                "/clearerr": self._clear,
                "/jointreset": self._reset_joints,
                "/update_param": self._update,
                "/open_gripper": lambda _: self._open_or_close(opens=True),
                "/close_gripper": lambda _: self._open_or_close(opens=False),
                "/move_gripper": self._move_gripper,
                "/activate_gripper": self._activate,
            }
            return commands[route](data) if route in commands else None

    def trip(self) -> None:
        """Stop, as an arm does that has run into something, until errors are cleared."""
        with self._lock:
            self._pass_time()
            self.dummy.reset()
            self.needs_clear = True

    def _pass_time(self) -> None:
        elapsed = (time.monotonic() - self._last) * self.speed
        ticks = math.floor(elapsed / _TICK_SECONDS)
        if ticks:
            self._last += ticks * _TICK_SECONDS / self.speed
            self.dummy.sleep(min(ticks * _TICK_SECONDS, _LONGEST_MOTION_SECONDS))

    def _report(self, what: str) -> dict[str, Any]:
        state = self.dummy.state()
        numbers: dict[str, Any] = {
            "pose": state.pose.tolist(),
            "vel": state.velocity.tolist(),
            "force": state.wrench[:3].tolist(),
            "torque": state.wrench[3:].tolist(),
            "q": [0.0] * 7,
            "dq": [0.0] * 7,
            "jacobian": [[0.0] * 7] * 6,
        }
        if what in {"state", "_gripper"} and self.gripper == "none":
            raise ValueError("there is no gripper")
        if what == "state":
            return {**numbers, "gripper_pos": state.gripper}
        if what == "_gripper":
            return {"gripper": state.gripper}
        name = "pose" if what == "pos" else what
        return {name: numbers[name]}

    def _move(self, data: Any) -> str:
        pose = [float(number) for number in data["arr"]]
        if len(pose) != 7:
            raise ValueError(f"a pose has 7 numbers, not {len(pose)}")
        if not self.needs_clear:
            self.dummy.move_to(np.array(pose))
        return "Moved"

    def _clear(self, data: Any) -> str:
        del data
        self.needs_clear = False
        return "Clear"

    def _reset_joints(self, data: Any) -> str:
        """Be there at once; the real one takes half a minute, and then has the parameters that it starts with."""
        del data
        self.dummy.pose = pose_from_euler(START)
        self.dummy.reset()
        self.needs_clear = False
        self.parameters = {}
        return "Reset Joint"

    def _update(self, data: Any) -> str:
        if unknown := set(data) - _PARAMETERS:
            raise ValueError(f"don't know parameter: {', '.join(sorted(unknown))}")
        self.parameters.update(data)
        return "Updated compliance parameters"

    def _activate(self, data: Any) -> str:
        del data
        if self.gripper == "robotiq":
            self.is_active = True
            self.dummy.set_gripper(1.0)
        return "Activated"

    def _open_or_close(self, *, opens: bool) -> str:
        if self.gripper == "robotiq":
            self._send_counts(_ROBOTIQ_OPENED if opens else _ROBOTIQ_CLOSED)
        elif self.has_grasped == opens:  # it ignores what it remembers to have done
            self.has_grasped = not opens
            self.dummy.set_gripper(float(opens))
        return "Opened" if opens else "Closed"

    def _move_gripper(self, data: Any) -> str:
        counts = min(max(int(data["gripper_pos"]), 0), 255)
        if self.gripper == "robotiq":
            self._send_counts(counts)
        else:
            self.dummy.set_gripper(min(counts * _COUNT_METERS / _WIDTH_METERS, 1.0))
        return "Moved Gripper"

    def _send_counts(self, counts: int) -> None:
        if self.is_active:
            self.dummy.set_gripper(1.0 - counts / 255.0)


class SimulatedFrankaServer(ThreadingHTTPServer):
    """Serves an arm; ``with`` runs it in a thread until the end of the block.

    Args:
        arm: The arm.
        port: Where it listens on 127.0.0.1; 0 takes a free one, which ``server_port`` is.
        keeps_connections: Whether a connection serves several requests; Flask's own server, the robot's, closes it.
    """

    daemon_threads = True

    def __init__(self, arm: SimulatedArm, *, port: int = 0, keeps_connections: bool = False) -> None:
        self.arm = arm
        self.requests: list[tuple[str, Any]] = []
        handler = type("Handler", (_Handler,), {"protocol_version": "HTTP/1.1" if keeps_connections else "HTTP/1.0"})
        super().__init__(("127.0.0.1", port), handler)

    @property
    def address(self) -> str:
        """``HOST:PORT``."""
        return f"127.0.0.1:{self.server_port}"

    def respond(self, route: str, data: Any) -> tuple[int, str, bytes]:
        """Return status, type and text of an answer."""
        self.requests.append((route, data))
        try:
            answer = self.arm.answer(route, data)
        except (KeyError, TypeError, ValueError) as error:
            return 500, "text/html", f"<title>500 Internal Server Error</title>{error}".encode()
        if answer is None:
            return 404, "text/html", b"<title>404 Not Found</title>"
        if isinstance(answer, str):
            return 200, "text/html; charset=utf-8", answer.encode()
        return 200, "application/json", json.dumps(answer).encode()

    def __enter__(self) -> SimulatedFrankaServer:
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: SimulatedFrankaServer
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, kind, answer = self.server.respond(self.path, json.loads(body) if body else None)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="on 127.0.0.1; 0: a free one (default: %(default)s)"
    )
    parser.add_argument("--gripper", choices=GRIPPERS, default="franka", help="(default: %(default)s)")
    args = parser.parse_args(argv)

    def action() -> None:
        with SimulatedFrankaServer(SimulatedArm(gripper=args.gripper), port=args.port) as server:
            print(f"serving a simulated arm at {server.address}; Ctrl-C ends", flush=True)
            threading.Event().wait()

    return run_and_report(action)


if __name__ == "__main__":
    sys.exit(main())
