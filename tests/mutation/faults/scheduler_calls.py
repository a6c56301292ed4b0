"""Calls of workers, connections within a node, devices and secrets."""

from tests.mutation.fault import Fault

_CALLS = "rlinf/scheduler/calls.py"
_RESULTS = "rlinf/scheduler/results.py"
_LOCAL = "rlinf/scheduler/comm/local.py"
_ENDPOINT = "rlinf/scheduler/comm/endpoint.py"
_ACCELERATORS = "rlinf/scheduler/accelerators.py"
_UNIT = "tests/unit/scheduler/"

FAULTS: list[Fault] = [
    Fault(
        file="rlinf/scheduler/group_registry.py",
        before="        if (node, port) in self._ports:\n",
        after="        if self._ports.get((node, port), owner) != owner:\n",
        tests=(_UNIT + "test_group_registry.py",),
        what="a worker is given the same port twice",
    ),
    Fault(
        file=_CALLS,
        before="            yield reply\n        except BaseException as error:",
        after="            yield reply\n        except ValueError as error:",
        tests=(_UNIT + "test_calls.py",),
        what="a reply that cannot be sent ends the thread that serves",
    ),
    Fault(
        file=_CALLS,
        before="type(error).__name__, error_text(error), text, original",
        after="type(error).__name__, str(error), text, original",
        tests=(_UNIT + "test_calls.py",),
        what="an error whose message raises is never told",
    ),
    Fault(
        file=_CALLS,
        before="            pickle.loads(original)\n        except BaseException:",
        after="            pickle.loads(original)\n        except Exception:",
        tests=(_UNIT + "test_calls.py",),
        what="an error that exits while it is pickled is never told",
    ),
    Fault(
        file=_RESULTS,
        before="        if next(self._numbers) == self._count or not succeeded:",
        after="        if next(self._numbers) == self._count:",
        tests=(_UNIT + "test_results.py",),
        what="a failure waits for the other ranks",
    ),
    Fault(
        file=_RESULTS,
        before="        if next(self._numbers) == self._count or not succeeded:",
        after="        if next(self._numbers) == self._count - 1 or not succeeded:",
        tests=(_UNIT + "test_results.py",),
        what="a wait ends one reply early",
    ),
    Fault(
        file=_RESULTS,
        before="        address, failure = self._progress.failed[0]",
        after="        address, failure = self._progress.failed[-1]",
        tests=(_UNIT + "test_results.py",),
        what="the last failure is raised in place of the first",
    ),
    Fault(
        file=_RESULTS,
        before="            future.add_done_callback(partial(self._progress.note, address))",
        after="            future.add_done_callback(lambda done, address=address: self._progress.note(address, done))",
        tests=(_UNIT + "test_results.py",),
        what="replies stay until cycles are collected",
    ),
    Fault(
        file=_LOCAL,
        before="errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM",
        after="errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE",
        tests=(_UNIT + "comm/test_local.py",),
        what="messages are dropped when the kernel has no memory",
    ),
    Fault(
        file=_LOCAL,
        before="errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM",
        after="errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM",
        tests=(_UNIT + "comm/test_local.py",),
        what="a full queue of connections loses messages",
    ),
    Fault(
        file=_LOCAL,
        before="                self._loop.call_later(_RETRY_SECONDS, self._flush)\n            self._note_wait",
        after="                pass\n            self._note_wait",
        tests=(_UNIT + "comm/test_local.py",),
        what="a connection is tried twice only",
    ),
    Fault(
        file=_LOCAL,
        before="                self._socket.send(self.backlog[0])\n                self.backlog.popleft()",
        after="                self._socket.send(self.backlog.popleft())",
        tests=(_UNIT + "comm/test_local.py",),
        what="a record is lost when the second attempt fails too",
    ),
    Fault(
        file=_LOCAL,
        before="        if not self.backlog and self._socket is not None:",
        after="        if self._socket is not None:",
        tests=(_UNIT + "comm/test_local.py",),
        what="a message overtakes those that wait",
    ),
    Fault(
        file=_LOCAL,
        before="        self._on_lost(self._failure)",
        after="        self._failure.add_note('lost')",
        tests=(_UNIT + "comm/test_local.py",),
        what="a living process that cannot be reached is a silence",
    ),
    Fault(
        file=_LOCAL,
        before="            if self._is_reported and self._failure is not None:",
        after="            if self._is_reported and self._failure is None:",
        tests=(_UNIT + "comm/test_local.py",),
        what="messages to a process out of reach are dropped without an error",
    ),
    Fault(
        file=_LOCAL,
        before="                self._events.modify(self._listener.fileno(), 0)",
        after="                self._events.modify(self._listener.fileno(), select.EPOLLIN)",
        tests=(_UNIT + "comm/test_local.py",),
        what="the accept loop spins without descriptors",
    ),
    Fault(
        file=_LOCAL,
        before="        if not self._closed:\n            self._events.modify(self._listener.fileno(), select.EPOLLIN)",
        after="        if self._closed:\n            self._events.modify(self._listener.fileno(), select.EPOLLIN)",
        tests=(_UNIT + "comm/test_local.py",),
        what="no connection is accepted after descriptors were short",
    ),
    Fault(
        file=_ENDPOINT,
        before='        get_logger(__name__).error("%s", error)\n        self._fail_requests(uid, error)',
        after='        get_logger(__name__).error("%s", error)',
        tests=(_UNIT + "comm/test_local.py",),
        what="requests to a process out of reach never end",
    ),
    Fault(
        file="rlinf/scheduler/comm/segment_pool.py",
        before="    except OSError:  # some sandboxes (gVisor) have no such file\n        return True",
        after="    except OSError:  # some sandboxes (gVisor) have no such file\n        return False",
        tests=(_UNIT + "comm/test_segment_pool.py::test_a_kernel_that_cannot_tell_what_was_written_maps_anew",),
        what="what a receiver wrote hides the next message where the kernel cannot tell",
    ),
    Fault(
        file="rlinf/scheduler/attach.py",
        before="    if not address and not wants_new_ray():",
        after="    if not address:",
        tests=(_UNIT + "test_attach_folders.py::test_local_starts_a_ray_even_where_one_runs",),
        what="RAY_ADDRESS=local joins the Ray that runs already",
    ),
    Fault(
        file="rlinf/utils/ray_address.py",
        before='    return "" if address == _NEW else address',
        after="    return address",
        tests=("tests/unit/utils/test_ray_address.py",),
        what="local counts as the address of a cluster elsewhere",
    ),
    Fault(
        file="rlinf/scheduler/comm/folders.py",
        before="    return base if len(os.fsencode(longest)) <= _SOCKET_PATH_BYTES else _SHORT_BASE",
        after="    return base if len(os.fsencode(base)) <= _SOCKET_PATH_BYTES else _SHORT_BASE",
        tests=(_UNIT + "comm/test_folders.py", _UNIT + "test_attach_folders.py"),
        what="the names inside the folder do not count for a socket's path",
    ),
    Fault(
        file=_ACCELERATORS,
        before="    if visible is None or not devices:\n        return tuple(devices)",
        after="    if not visible or not devices:\n        return tuple(devices)",
        tests=(_UNIT + "test_accelerators.py",),
        what="an empty CUDA_VISIBLE_DEVICES means all GPUs",
    ),
    Fault(
        file=_ACCELERATORS,
        before="    return tuple(Accelerator(entry, models[entry]) for entry in found if entry is not None)",
        after="    return tuple(Accelerator(str(rank), models[entry]) for rank, entry in enumerate(found) if entry)",
        tests=(_UNIT + "test_accelerators.py",),
        what="GPUs are counted by CUDA_VISIBLE_DEVICES and then taken from 0",
    ),
    Fault(
        file=_ACCELERATORS,
        before="    if None in found or len(set(found)) < len(found):",
        after="    if None in found:",
        tests=(_UNIT + "test_accelerators.py",),
        what="two ranks get one GPU",
    ),
    Fault(
        file="rlinf/scheduler/environment.py",
        before='    visible = ",".join(accelerators)',
        after='    visible = ",".join(placement.visible_accelerators)',
        tests=(_UNIT + "test_environment.py::test_every_process_knows_its_own_device",),
        what="workers see GPUs that the node's variable does not name",
    ),
    Fault(
        file="rlinf/scheduler/environment.py",
        before="        if name in _EARLY or name.startswith(_EARLY_PREFIXES)",
        after="        if name",
        tests=(
            _UNIT + "test_environment.py::test_only_what_a_process_reads_as_it_starts_is_set_by_ray",
            _UNIT + "test_security_secrets.py",
        ),
        what="secrets of node groups are in Ray's logs",
    ),
    Fault(
        file="rlinf/config/checks/simulator_checks.py",
        before='    if params["sim_backend"] in _CPU_BACKENDS and "num_envs" not in params:',
        after='    if "num_envs" not in params:',
        tests=("tests/unit/config/checks/test_simulator_checks.py",),
        what="the plan accepts a simulation on the GPU that every worker refuses",
    ),
]
