"""Faults in waits that are given up, in what they leave behind, and in payloads."""

from __future__ import annotations

from tests.mutation.fault import Fault

_WORK = "rlinf/scheduler/comm/work.py"
_MAILBOX = "rlinf/scheduler/comm/mailbox.py"
_QUEUE = "rlinf/scheduler/channel/queue.py"
_BACKENDS = "rlinf/scheduler/channel/channel_backend.py"
_SERIALIZATION = "rlinf/scheduler/comm/serialization.py"

_RAY_CALLS = "rlinf/scheduler/ray_calls.py"

_GIVEN_UP = (
    "tests/unit/scheduler/channel/test_channel_backend.py",
    "tests/unit/scheduler/comm/test_work_given_up.py",
    "tests/unit/scheduler/comm/test_outbox.py",
)
_QUEUES = ("tests/unit/scheduler/channel/test_queue.py",)
_STARTS = ("tests/unit/scheduler/test_ray_calls.py",)
_DEADLINES = ("tests/unit/scheduler/comm/test_futures.py",)
_IN_PLACE = ("tests/unit/scheduler/test_runtime_tensors.py",)
_SEGMENTS = ("tests/unit/scheduler/comm/test_segment_pool.py",)
_LOCAL = ("tests/unit/scheduler/comm/test_local.py",)
_FRAMES = ("tests/unit/scheduler/comm/test_serialization.py",)

FAULTS: list[Fault] = [
    Fault(
        file=_WORK,
        before="""                    await self._async_await(timeout)
            return self._finish(self._future.result())
        except BaseException as error:
            if not isinstance(error, Exception):
                self.give_up()
            raise""",
        after="""                    await self._async_await(timeout)
            return self._finish(self._future.result())
        except BaseException:
            raise""",
        tests=_GIVEN_UP,
        what="a cancelled task keeps its item for itself",
    ),
    Fault(
        file=_WORK,
        before="""                    self._await(timeout)
            return self._finish(self._future.result())
        except BaseException as error:
            if not isinstance(error, Exception):""",
        after="""                    self._await(timeout)
            return self._finish(self._future.result())
        except BaseException as error:
            if not isinstance(error, BaseException):""",
        tests=_GIVEN_UP,
        what="an interrupted wait stays registered",
    ),
    Fault(
        file=_WORK,
        before="if claim is not None and claim.loop is not None and self._outcome is None:",
        after="if claim is not None and self._outcome is None and not self._future.done():",
        tests=_GIVEN_UP,
        what="dropped work that has ended keeps its item, and a dropped put is not carried out",
    ),
    Fault(
        file=_WORK,
        before="""                for work in held:
                    work.give_up()""",
        after="                pass",
        tests=_GIVEN_UP,
        what="a continuation that is given up keeps what its source brings",
    ),
    Fault(
        file="rlinf/scheduler/comm/helpers.py",
        before="starts = self._num_free <= 0",
        after="starts = threading.active_count() < 3",
        tests=_GIVEN_UP,
        what="a continuation that waits holds up the others",
    ),
    Fault(
        file="rlinf/scheduler/comm/helpers.py",
        before='threading.Thread(target=self._run, name="rlinf-then", daemon=True)',
        after='threading.Thread(target=self._run, name="rlinf-then")',
        tests=_GIVEN_UP,
        what="a script does not end while a continuation waits",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="""        if cancelled:
            self._forget(self.number)""",
        after="        if cancelled:\n            pass",
        tests=_GIVEN_UP,
        what="cancelled requests are kept for ever",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="""        if ended:
            self._forget(self.number)""",
        after="        if ended:\n            pass",
        tests=_GIVEN_UP,
        what="timed-out requests are kept for ever",
    ),
    Fault(
        file=_BACKENDS,
        before="            request.add_done_callback(self._endpoint.deadlines.remove)\n",
        after="",
        tests=_GIVEN_UP,
        what="a timed get keeps its item until its time-out",
    ),
    Fault(
        file=_BACKENDS,
        before="if request.cancelled() or request.exception() is None:",
        after="if request.cancelled():",
        tests=_GIVEN_UP,
        what="an item that had arrived is not given back",
    ),
    Fault(
        file=_BACKENDS,
        before="        weakref.finalize(self, _leave_soon, *leave).atexit = False\n",
        after="",
        tests=_GIVEN_UP,
        what="what is left in closed channels stays",
    ),
    Fault(
        file="rlinf/scheduler/channel/channel.py",
        before="        self._backend.pass_on()\n",
        after="",
        tests=_GIVEN_UP,
        what="a closed channel goes before those it was given to have opened it",
    ),
    Fault(
        file=_MAILBOX,
        before="while place and arrived[place - 1][:2] > message[:2]:",
        after="while False:",
        tests=_GIVEN_UP,
        what="a message that comes back stands last",
    ),
    Fault(
        file=_MAILBOX,
        before="if untaken is not None and self._is_stale(untaken[0]):",
        after="if untaken is None:",
        tests=_GIVEN_UP,
        what="a message of a dead worker comes back",
    ),
    Fault(
        file=_MAILBOX,
        before="""        if not waiting:
            self._waiting.pop(key, None)
        if found""",
        after="        if found",
        tests=_GIVEN_UP,
        what="every tag leaves a queue behind",
    ),
    Fault(
        file="rlinf/scheduler/comm/outbox.py",
        before="            pickle.dumps(tag)",
        after="            pass",
        tests=_GIVEN_UP,
        what="a first message with a bad tag fails in a callback",
    ),
    Fault(
        file="rlinf/scheduler/comm/outbox.py",
        before="""                if not future.set_running_or_notify_cancel():
                    continue""",
        after="                future.set_running_or_notify_cancel()",
        tests=_GIVEN_UP,
        what="a send that was given up is sent",
    ),
    Fault(
        file=_QUEUE,
        before="lane.items.insert(next(later, len(lane.items)), item)",
        after="lane.items.appendleft(item)",
        tests=_QUEUES,
        what="items that come back change their order",
    ),
    Fault(
        file=_QUEUE,
        before="                del lane.items[place]",
        after="                pass",
        tests=_QUEUES,
        what="a put that was given up is put all the same",
    ),
    Fault(
        file=_QUEUE,
        before="            self._forgotten.update(lane.producers, lane.consumers)\n",
        after="",
        tests=_QUEUES,
        what="the death of who fed a forgotten key ends no wait",
    ),
    Fault(
        file="rlinf/scheduler/comm/futures.py",
        before="if entry is not None and entry.when == when:",
        after="if entry is None:",
        tests=_DEADLINES,
        what="deadlines do not fire",
    ),
    Fault(
        file="rlinf/scheduler/messaging.py",
        before="if (dtype, shape) != (str(tensor.dtype), tuple(tensor.shape)):",
        after="if shape != tuple(tensor.shape):",
        tests=_IN_PLACE,
        what="recv_tensor takes another dtype for its own",
    ),
    Fault(
        file=_SERIALIZATION,
        before='        "quantized": tensor.is_quantized,\n',
        after="",
        tests=_IN_PLACE,
        what="a quantized tensor is taken for a dense one",
    ),
    Fault(
        file=_SERIALIZATION,
        before="""        if known is not None:
            return known[0]
""",
        after="",
        tests=_FRAMES,
        what="bytes that occur twice arrive as two objects",
    ),
    Fault(
        file=_SERIALIZATION,
        before="return 2 if kind is not bytes or len(obj) < _OUT_OF_BAND_BYTES else 0",
        after="return 2",
        tests=_FRAMES,
        what="large bytes go through the pickle",
    ),
    Fault(
        file="rlinf/scheduler/comm/segment_pool.py",
        before="            self._reserved_bytes -= segment.size\n",
        after="            pass\n",
        tests=_SEGMENTS,
        what="idle memory grows with every reservation",
    ),
    Fault(
        file="rlinf/scheduler/comm/segment_pool.py",
        before="            self._idle_limit_bytes = max(self._idle_limit_bytes, self._reserved_bytes)\n",
        after="            pass\n",
        tests=_SEGMENTS,
        what="memory of weights is made anew for every update",
    ),
    Fault(
        file="rlinf/scheduler/comm/segment_pool.py",
        before="                memory.madvise(_MADV_POPULATE_WRITE)",
        after="                pass",
        tests=_SEGMENTS,
        what="each page of a new segment is a fault",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="if blocks and not self._will_tell:",
        after="if False:",
        tests=_SEGMENTS,
        what="each release wakes the thread that tells it",
    ),
    Fault(
        file="rlinf/scheduler/comm/local.py",
        before="            self._reopening.set(_GRACE_SECONDS)\n            self._reading.release()",
        after="            self._reading.release()",
        tests=_LOCAL,
        what="messages are not read when nobody waits any more",
    ),
    Fault(
        file="rlinf/scheduler/comm/local.py",
        before="                self._gate.modify(self._events.fileno(), select.EPOLLIN)",
        after="                pass",
        tests=_LOCAL,
        what="reading stays with the thread that has waited",
    ),
    Fault(
        file=_RAY_CALLS,
        before="return [work.wait(max(deadline - time.monotonic(), 0.0)) for work in works]",
        after="return ray.get(list(calls))",
        tests=_STARTS,
        what="a process that Ray cannot start is waited for without end",
    ),
    Fault(
        file=_RAY_CALLS,
        before="return [work.wait(max(deadline - time.monotonic(), 0.0)) for work in works]",
        after="return [work.wait(limit) for work in sorted(works, key=lambda work: not work.done())]",
        tests=_STARTS,
        what="results in the order in which they come",
    ),
    Fault(
        file=_RAY_CALLS,
        before="return [work.wait(max(deadline - time.monotonic(), 0.0)) for work in works]",
        after="return [work.wait(limit) for work in works]",
        tests=_STARTS,
        what="nodes that answer late by turns may take several limits",
    ),
    Fault(
        file=_RAY_CALLS,
        before="            promise.set_exception(error)",
        after="            promise.set_result(error)",
        tests=_STARTS,
        what="what a node raised counts as its answer",
    ),
    Fault(
        file=_RAY_CALLS,
        before="    limit = start_limit_seconds()\n",
        after="    limit = 600.0\n",
        tests=_STARTS,
        what="the variable of the limit is not read",
    ),
]
