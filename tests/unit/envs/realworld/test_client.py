"""How an environment gets hold of a robot, and shares it."""

import pytest

from rlinf.envs.realworld.client import Connection, Connections, WallClock, load_client
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
