"""What a run does now: each process reports (``Introspection``), the manager joins, ``rlinf status`` queries it.

A process reports from its endpoint's thread, so also while its methods are blocked. ``rlinf status`` needs no key of
the run: it queries through Ray, which admits only holders of the cluster's token.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray

from rlinf.errors import ClusterError, RLinfError
from rlinf.registry import did_you_mean
from rlinf.scheduler.address import MANAGER_NAME, EndpointInfo, ray_namespace, run_of
from rlinf.scheduler.attach import adopt_authentication, running_rays
from rlinf.scheduler.comm.endpoint import Call, Endpoint, Reply
from rlinf.scheduler.comm.futures import current_waits, wait_any
from rlinf.utils.ray_address import named_ray

# The manager itself waits for answers of its processes for a part of it.
_QUERY_SECONDS = 20.0

STATUS = "status"
# Who has not answered by then computes without letting go of Python's lock, or is stopped.
ANSWER_SECONDS = 3.0


@dataclass(frozen=True)
class RunState:
    """What the manager knows.

    Attributes:
        processes: Where each process listens, by uid.
        labels: Name of each process, by uid.
        groups: Every group's newest launch and its ranks.
        leases: Locks and ports, by uid of their holders.
    """

    processes: Mapping[str, EndpointInfo]
    labels: Mapping[str, str]
    groups: list[dict[str, Any]]
    leases: dict[str, Any]


def assemble(state: RunState, reports: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Join what the manager knows with the reports of the processes.

    Args:
        state: What the manager knows.
        reports: What the processes do, by uid; who is missing has not answered.

    Returns:
        Plain values: ``groups`` (their ranks with pid, node, ``calls``, ``waits``, ``dropped``), ``services`` (the
        driver and the channel hosts, likewise), ``channels`` and ``leases``, with names instead of uids.
    """
    by_label = {label: uid for uid, label in state.labels.items()}
    of_workers: set[str] = set()
    for group in state.groups:
        for rank in group["ranks"]:
            uid = rank.pop("uid", None) or by_label.get(f"{group['name']}:{rank['rank']}")
            if uid is not None and rank["state"] != "gone":
                of_workers.add(uid)
                rank.update(_told(reports.get(uid)))
    services = [
        {"label": label, "node_id": state.processes[uid].node_id, **_told(reports.get(uid))}
        for uid, label in state.labels.items()
        if uid not in of_workers and uid in state.processes
    ]
    channels = [channel for report in reports.values() for channel in report.get("channels", ())]
    for channel in channels:
        for key in channel["keys"]:
            for waiter in [*key["getters"], *key["putters"]]:
                waiter["who"] = state.labels.get(waiter.pop("uid"), "a process that has left")
    return {"groups": state.groups, "services": services, "channels": channels, "leases": _named(state)}


def _told(report: dict[str, Any] | None) -> dict[str, Any]:
    if report is None:
        return {"answers": False, "calls": [], "waits": [], "dropped": 0}
    return {
        "answers": True,
        "pid": report["pid"],
        "calls": report.get("calls", []),
        "waits": report["waits"],
        "dropped": report["dropped"],
    }


def _named(state: RunState) -> dict[str, Any]:
    def name(uid: str) -> str:
        return state.labels.get(uid, uid)

    locks = [
        {"key": lock["key"], "holder": name(lock["holder"]), "waiting": [name(uid) for uid in lock["waiting"]]}
        for lock in state.leases["locks"]
    ]
    return {"locks": locks, "ports": [{**port, "holder": name(port["holder"])} for port in state.leases["ports"]]}


def query_status(name: str | None, address: str | None = None) -> dict[str, Any]:
    """Query what a running run does.

    Args:
        name: The run, or its experiment; None is the only run there is.
        address: ``HOST:PORT`` of its Ray; None looks at ``RAY_ADDRESS``, else at each Ray of this user here.

    Returns:
        As ``assemble``, with ``namespace``, ``experiment_name`` and ``here``: Ray's id of this node.

    Raises:
        ClusterError: There is no such run, or several to choose from, or its manager does not answer.
    """
    given = address or named_ray()
    addresses = [given] if given else running_rays()
    places: dict[str, str] = {}
    experiments: dict[str, str | None] = {}
    for candidate in addresses:
        with _connected(candidate) as namespaces:
            if name in namespaces or (name is None and len(addresses) == 1 == len(namespaces)):
                return _query(name or namespaces[0])
            places.update(dict.fromkeys(namespaces, candidate))
            experiments.update(_experiments(namespaces))
    meant = [run for run, experiment in experiments.items() if name in {None, experiment}]
    if len(meant) == 1:
        with _connected(places[meant[0]]):
            return _query(meant[0])
    raise _no_choice(name, experiments, addresses)


def run_title(namespace: str, experiment_name: str | None) -> str:
    """Return a run's name as users read it, for example ``290df286 (gym_cartpole_ppo_mlp)``."""
    return namespace if experiment_name is None else f"{namespace} ({experiment_name})"


def _no_choice(name: str | None, experiments: Mapping[str, str | None], addresses: list[str]) -> ClusterError:
    if not addresses:
        return ClusterError("No Ray of this user runs on this machine; set RAY_ADDRESS=HOST:PORT for one elsewhere.")
    if not experiments:
        return ClusterError(f"No run is alive on the Ray at {', '.join(addresses)}.")
    alive = ", ".join(run_title(run, experiment) for run, experiment in sorted(experiments.items()))
    if name is None or name in experiments.values():
        return ClusterError(f"More than one run is alive: name one of {alive}.")
    names = sorted({*experiments, *filter(None, experiments.values())})
    return ClusterError(f"No run '{name}' is alive.{did_you_mean(name, names)} Alive: {alive}.")


@contextmanager
def _connected(address: str) -> Iterator[list[str]]:
    """Connect to a Ray for a moment; yields the runs on it."""
    if ray.is_initialized():  # by a notebook, say, or a driver that queries its own run
        yield _namespaces()
        return
    before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    adopt_authentication(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="rlinf_status")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise ClusterError(f"Cannot connect to the Ray at {address}: {error}") from error
    try:
        yield _namespaces()
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _namespaces() -> list[str]:
    actors = ray.util.list_named_actors(all_namespaces=True)
    return sorted(run_of(str(actor["namespace"])) for actor in actors if actor["name"] == MANAGER_NAME)


def _experiments(namespaces: list[str]) -> dict[str, str | None]:
    """Return what runs work on; None for those that do not say it in time."""
    pending: dict[Any, str] = {}
    for namespace in namespaces:
        with suppress(ValueError):  # it has ended since
            manager = ray.get_actor(MANAGER_NAME, namespace=ray_namespace(namespace))
            pending[manager.experiment_name.remote()] = namespace
    names: dict[str, str | None] = dict.fromkeys(pending.values())
    for reply in ray.wait(list(pending), num_returns=len(pending), timeout=_QUERY_SECONDS)[0] if pending else ():
        with suppress(ray.exceptions.RayError):
            names[pending[reply]] = ray.get(reply)
    return names


def _query(namespace: str) -> dict[str, Any]:
    try:
        manager = ray.get_actor(MANAGER_NAME, namespace=ray_namespace(namespace))
        status: dict[str, Any] = ray.get(manager.status.remote(), timeout=_QUERY_SECONDS)
    except (ray.exceptions.RayError, ValueError) as error:
        raise ClusterError(f"The manager of run '{namespace}' does not answer: {error}") from error
    return {**status, "here": ray.get_runtime_context().get_node_id()}


class Introspection:
    """Answers what this process does.

    Args:
        endpoint: Where the question arrives.
        label: Name of the process.
    """

    def __init__(self, endpoint: Endpoint, label: str) -> None:
        self._label = label
        self._parts: dict[str, Callable[[], Any]] = {}
        endpoint.serve(STATUS, self._answer)

    def add(self, name: str, describe: Callable[[], Any]) -> None:
        """Report what ``describe`` returns, plain values only, under ``name``; called on the endpoint's thread."""
        self._parts[name] = describe

    def report(self) -> dict[str, Any]:
        """Return the report: ``label``, ``pid``, ``waits`` and the added parts."""
        report: dict[str, Any] = {"label": self._label, "pid": os.getpid(), "waits": current_waits()}
        for name, describe in self._parts.items():
            report[name] = describe()
        return report

    def _answer(self, call: Call) -> None:
        call.reply(self.report())


def request_reports(endpoint: Endpoint, processes: Sequence[EndpointInfo]) -> dict[str, dict[str, Any]]:
    """Query what processes do; not from the endpoint's own thread.

    Returns:
        The reports by uid, of those that answered within ``ANSWER_SECONDS``.
    """
    pending: dict[str, Future[Reply]] = {process.uid: endpoint.request(process, STATUS) for process in processes}
    deadline = time.monotonic() + ANSWER_SECONDS
    reports: dict[str, dict[str, Any]] = {}
    for uid, future in pending.items():
        wait_any([future], max(deadline - time.monotonic(), 0.0))
        try:
            reports[uid] = future.result(timeout=0).value
        except (FutureTimeoutError, RLinfError):
            continue
    return reports


def summarize(report: dict[str, Any] | None) -> str:
    """Return in one line what a process does."""
    if report is None:
        return "does not answer"
    running = [f"runs {call['method']}() since {clock(call['since'])}" for call in report.get("calls", ())]
    begins: dict[str, list[float]] = {}
    for wait in report["waits"]:
        begins.setdefault(wait["what"], []).append(wait["since"])
    # Hundreds of episodes may wait for the same.
    waiting = [
        f"{what} ({f'{len(since)} times, ' if len(since) > 1 else ''}since {clock(min(since))})"
        for what, since in begins.items()
    ]
    return "; ".join([*running, *waiting]) or "idle"


def clock(seconds: float) -> str:
    """Return a time of day for people."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))
