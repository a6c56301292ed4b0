"""How an environment gets hold of a robot, and shares it."""

from typing import Any

import pytest

from rlinf.envs.realworld.client import Connection, Connections, WallClock, load_client, make_client
from rlinf.envs.realworld.dummy import DummyFranka
from rlinf.errors import ConfigError


class Client:
    num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


def test_one_robot_has_one_connection_which_the_last_user_closes() -> None:
    connections, made = Connections(), []

    def make() -> Connection:
        made.append(Client())
        return Connection(made[-1], WallClock())

    first, second = connections.take("a", make), connections.take("a", make)
    assert first is second
    assert connections.take("b", make) is not first
    connections.release("a")
    assert made[0].num_closed == 0
    connections.release("a")
    assert [client.num_closed for client in made] == [1, 0]
    assert connections.take("a", make) is not first


def test_a_client_is_named_by_its_import_path() -> None:
    assert load_client("rlinf.envs.realworld.dummy:DummyFranka") is DummyFranka


@pytest.mark.parametrize("path", ["no_such_lab.franka:Client", "rlinf.envs.realworld.dummy:Missing", "", "json"])
def test_what_cannot_be_imported_is_told(path: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.\*\.client: received .*allowed: package\.module:Name"):
        load_client(path)


def test_what_cannot_be_called_is_told() -> None:
    with pytest.raises(ConfigError, match="which is a int and cannot be called"):
        load_client("rlinf.envs.realworld.franka:STATE_SIZE")


def lab(*, robot_ip: str, speed: float = 1.0, gain: int = 2) -> tuple[Any, ...]:
    return robot_ip, speed, gain


def any_lab(**keys: Any) -> dict[str, Any]:
    return keys


def test_a_client_gets_its_parameters_next_to_what_describes_the_robot() -> None:
    assert make_client(f"{__name__}:lab", {"gain": 5}, robot_ip="a") == ("a", 1.0, 5)
    assert make_client(f"{__name__}:any_lab", {"gain": 5}, robot_ip="a") == {"robot_ip": "a", "gain": 5}


@pytest.mark.parametrize(
    ("name", "params", "received", "allowed"),
    [
        ("lab", {"sped": 1, "gain": 3, "again": 3}, "again, sped", "gain, speed"),
        ("lab", {"robot_ip": "b"}, "robot_ip", "gain, speed"),
        ("any_lab", {"robot_ip": "b"}, "robot_ip", "none"),
    ],
)
def test_parameters_that_a_client_does_not_take_are_told(name: str, params: Any, received: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_client(f"{__name__}:{name}", params, robot_ip="a")
    expected = f"env.*.client_params: received {received}; allowed for '{__name__}:{name}': {allowed}. Correct"
    assert str(caught.value).startswith(expected)


def test_a_type_error_of_the_client_itself_is_not_taken_for_one_of_its_arguments() -> None:
    with pytest.raises(TypeError):
        make_client("builtins:abs", {})


def test_a_compiled_client_that_does_not_say_what_it_takes_gets_everything() -> None:
    assert make_client("builtins:dict", {"gain": 3}, robot_ip="a") == {"robot_ip": "a", "gain": 3}
