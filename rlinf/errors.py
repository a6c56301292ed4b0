"""Every exception RLinf raises on purpose: one tree, so that a user can catch all of it or one leaf.

Some are a built-in error as well: the one that callers of the published system catch in its place.
A message names where (config path, or group, rank and method), what was received, what is allowed and what to do.
"""

from __future__ import annotations


class RLinfError(Exception):
    """Base of all errors that RLinf raises on purpose."""


class ConfigError(RLinfError, AssertionError, ValueError):
    """A recipe does not say something that can run; the message holds one line per problem found."""


class RunLockedError(ConfigError):
    """The run's folder is in use by another process; the message names its host, process and command."""


class PlacementError(ConfigError):
    """A placement string or strategy that the cluster cannot satisfy."""


class RegistryError(RLinfError, ValueError):
    """An unknown or duplicate name in a registry."""


class MissingPackageError(RLinfError, ImportError):
    """An optional package is needed and not installed; the message holds the command that installs it."""


class UnsupportedError(RLinfError, AttributeError):
    """A published attribute that has no counterpart here; the message says what to use instead."""


class ClusterError(RLinfError):
    """Ray could not be reached or started, or its nodes do not fit the recipe."""


class CheckpointError(RLinfError):
    """A checkpoint that is missing, half-written or made by another recipe."""


class DatasetError(RLinfError):
    """A saved replay or data set that is missing, damaged or of another kind."""


class MetricError(RLinfError, ValueError):
    """A metric that is no number, has two reducers, was never measured, or is logged for a step that is written."""


class ReportError(RLinfError):
    """A report about a folder that holds no run."""


class EnvironmentFailure(RLinfError):
    """An environment raised while it was reset or stepped; the message names the environment and its step."""


class EpisodeRestoreError(EnvironmentFailure):
    """Saved episodes cannot be continued: replaying their actions does not lead to the saved observations."""


class ConformanceError(RLinfError, AssertionError):
    """An environment or a policy breaks a rule of its interface.

    Attributes:
        rule: The rule's short name, for example ``"reset-determinism"``.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"[{rule}] {message}")
        self.rule = rule
        self._message = message

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the rule when the error travels between processes."""
        return (type(self), (self.rule, self._message))


class RewardError(RLinfError):
    """A reward that cannot be computed: a service that does not answer, a wrong shape, or a number that is not one."""


class AgentError(RLinfError):
    """An episode that cannot be played: a chat template, a workflow or a tool that does not work."""


class NumericalError(RLinfError):
    """A loss or gradient that is not finite."""


class AlgorithmError(RLinfError, ValueError):
    """Tensors or keyword arguments that an algorithm cannot work with; the message names function and argument."""


class EngineError(RLinfError):
    """A generation engine that has failed, or a request that it cannot answer; the message names the field."""


class EngineDiedError(EngineError):
    """A server of a generation engine that has died, hangs or cannot be reached; another may serve the request."""


class WeightSyncError(RLinfError):
    """Received weights do not match their manifest: a missing bucket, a wrong checksum or an older version."""


class WorkerError(RLinfError):
    """A worker's method raised.

    Attributes:
        group: Name of the worker group.
        rank: Rank of the worker within the group.
        method: The method that was running (``__init__`` when the worker could not start).
        node: Cluster rank of the node, or None when unknown.
        remote_traceback: The traceback as text, from the worker's process.
        failure: Where the error comes from another process: what its cause can be rebuilt from.
    """

    failure: object = None

    def __init__(
        self,
        message: str,
        *,
        group: str = "",
        rank: int = -1,
        method: str = "",
        node: int | None = None,
        remote_traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.group = group
        self.rank = rank
        self.method = method
        self.node = node
        self.remote_traceback = remote_traceback

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the attributes when the error travels between processes."""
        return (_rebuild_worker_error, (type(self), str(self), self.__dict__.copy()))


class WorkerDiedError(WorkerError):
    """A worker's process, or its node, is gone; every wait that depends on it raises this."""


class CommTimeoutError(RLinfError, TimeoutError):
    """A send, recv, broadcast, get or wait took longer than its timeout; the message names who waits for whom."""


class PayloadError(RLinfError, ValueError):
    """A tensor that ``send_tensor`` cannot send, or ``recv_tensor`` cannot receive into: its kind, dtype or shape."""


class ChannelClosedError(RLinfError):
    """The channel was closed and holds no more items for this key."""


def error_text(error: BaseException) -> str:
    """Return the message of an error; one whose ``__str__`` raises is named by its class."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the boundary: a broken message must not hide the error that it belongs to
        return f"<the message of this {type(error).__name__} cannot be read: its __str__ raises>"


def _rebuild_worker_error(cls: type[WorkerError], message: str, state: dict[str, object]) -> WorkerError:
    error = cls(message)
    error.__dict__.update(state)
    return error
