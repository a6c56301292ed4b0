"""Requests to a robot's server over a real socket, and what is said when something goes wrong with one."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlinf.envs.realworld.robot_server import RobotServer
from rlinf.errors import ConfigError, EnvironmentFailure


class Canned(ThreadingHTTPServer):
    """Answers each route with what is in ``answers``: text, a status, or an event that it waits for first."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, Any]] = []
        self.num_connections = 0
        self.closes_silently = self.hangs_up = False
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that do not wait for an answer."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Canned
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.num_connections += 1

    def handle(self) -> None:
        if not self.server.hangs_up:
            super().handle()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, json.loads(body) if body else None))
        answer = self.server.answers.get(self.path, "ok")
        if isinstance(answer, threading.Event):
            answer.wait(30)
            answer = "late"
        status, text = (answer, "it failed") if isinstance(answer, int) else (200, answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection |= self.server.closes_silently

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def canned() -> Iterator[Canned]:
    with Canned() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        for answer in server.answers.values():
            if isinstance(answer, threading.Event):
                answer.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def robot(canned: Canned) -> Iterator[RobotServer]:
    server = RobotServer(canned.address, timeout_seconds=5.0)
    yield server
    server.close()


def test_requests_are_posted_as_json_over_one_connection(canned: Canned, robot: RobotServer) -> None:
    canned.answers["/getstate"] = '{"pose": [1.5]}'
    assert robot.post("/pose", {"arr": [1.0, 2.0]}) == b"ok"
    assert robot.post("/clearerr") == b"ok"
    assert robot.read("/getstate") == {"pose": [1.5]}
    assert canned.requests == [("/pose", {"arr": [1.0, 2.0]}), ("/clearerr", None), ("/getstate", None)]
    assert canned.num_connections == 1


def test_a_connection_that_the_server_closes_is_opened_again(canned: Canned, robot: RobotServer) -> None:
    canned.closes_silently = True
    for _ in range(4):
        assert robot.post("/clearerr") == b"ok"
    assert len(canned.requests) == canned.num_connections == 4


def test_a_server_that_hangs_up_is_not_tried_again(canned: Canned, robot: RobotServer) -> None:
    canned.hangs_up = True
    with pytest.raises(EnvironmentFailure, match="/clearerr: no answer"):
        robot.post("/clearerr")
    assert canned.num_connections == 1


def test_a_late_answer_is_a_failure_and_is_not_taken_for_the_next(canned: Canned) -> None:
    robot = RobotServer(canned.address, timeout_seconds=0.1)
    canned.answers["/getstate"] = threading.Event()
    with pytest.raises(EnvironmentFailure, match=r"/getstate: did not answer within 0\.1 s.*raise timeout_seconds in"):
        robot.post("/getstate")
    canned.answers["/getstate"].set()
    assert robot.post("/clearerr", timeout_seconds=30.0) == b"ok"
    robot.close()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_limit_of_one_request_is_not_that_of_the_next(canned: Canned, is_open: bool) -> None:
    robot = RobotServer(canned.address, timeout_seconds=0.1)
    if is_open:
        robot.post("/clearerr", timeout_seconds=30.0)
    slow = canned.answers["/jointreset"] = threading.Event()
    timer = threading.Timer(0.3, slow.set)
    timer.start()
    assert robot.post("/jointreset", timeout_seconds=30.0) == b"late"
    canned.answers["/pose"] = threading.Event()
    with pytest.raises(EnvironmentFailure, match=r"/pose: did not answer within 0\.1 s"):
        robot.post("/pose")
    robot.close()


def test_a_server_that_does_not_run_is_told_with_how_to_start_it() -> None:
    with Canned() as server:
        address = server.address
    robot = RobotServer(address, timeout_seconds=5.0)
    with pytest.raises(EnvironmentFailure) as caught:
        robot.post("/getstate")
    message = str(caught.value)
    assert message.startswith(f"the robot {address}: /getstate: no answer (ConnectionRefusedError")
    assert "--flask_url=0.0.0.0" in message
    assert "correct robot_ip" in message


def test_an_unknown_host_is_told() -> None:
    with pytest.raises(EnvironmentFailure, match=r"the robot no-such-host\.invalid:5000: /getstate: no answer"):
        RobotServer("no-such-host.invalid", timeout_seconds=5.0).post("/getstate")


@pytest.mark.parametrize("status", [404, 500])
def test_a_status_that_is_no_success_is_shown(canned: Canned, robot: RobotServer, status: int) -> None:
    canned.answers["/getstate"] = status
    with pytest.raises(EnvironmentFailure, match=f"/getstate: answered HTTP {status}: 'it failed'. Look at the server"):
        robot.read("/getstate")


@pytest.mark.parametrize("answer", ["<html>", "[1, 2]", "", "\ufffd", "null"])
def test_an_answer_that_is_no_json_object_is_shown(canned: Canned, robot: RobotServer, answer: str) -> None:
    canned.answers["/getstate"] = answer
    with pytest.raises(EnvironmentFailure) as caught:
        robot.read("/getstate")
    assert f"answered {answer!r}; expected a JSON object" in str(caught.value)


def test_a_long_answer_is_shown_in_part(canned: Canned, robot: RobotServer) -> None:
    canned.answers["/getstate"] = "x" * 100_000
    with pytest.raises(EnvironmentFailure) as caught:
        robot.read("/getstate")
    assert "xxx...'" in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("address", ["", ":5000", "arm:port", "http://10.0.0.2", "arm:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"robot_ip: received '.*'; allowed: HOST or HOST:PORT"):
        RobotServer(address, timeout_seconds=1.0)
