"""Endpoints that end with their test."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    namespace = uuid.uuid4().hex[:8]
    keys = new_keys()
    made = []

    def endpoint(node: str = "n0", listen: str | None = None, keys: tuple[bytes, bytes] = keys) -> Any:
        made.append(Endpoint(namespace=namespace, node_id=node, keys=keys, listen_ip=listen))
        return made[-1]

    yield endpoint
    for entry in made:
        entry.close()
    remove_socket_folder(namespace)
