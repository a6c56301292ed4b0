"""Faults in how deaths, interrupts and the loss of services are noticed and told."""

from __future__ import annotations

from tests.mutation.fault import Fault

_WATCH = ("tests/unit/scheduler/test_process_watch.py",)
_GIVEN_UP = ("tests/unit/scheduler/test_manager_given_up.py",)
_STEPS = ("tests/unit/runners/test_step_runner.py",)
_SIGNALS = ("tests/unit/utils/test_signals.py",)
_GCS = ("tests/unit/scheduler/test_gcs_watch.py",)

FAULTS: list[Fault] = [
    Fault(
        file="rlinf/scheduler/process_watch.py",
        before='return None if state in {"Z", "X"} else int(fields[18])',
        after="return int(fields[18])",
        tests=_WATCH,
        what="a zombie seems to run",
    ),
    Fault(
        file="rlinf/scheduler/process_watch.py",
        before="return _start_of(process.pid) == process.started",
        after="return _start_of(process.pid) is not None",
        tests=_WATCH,
        what="another process with the same number is taken for the one that is watched",
    ),
    Fault(
        file="rlinf/scheduler/process_watch.py",
        before="        if process.namespace != _namespace():",
        after="        if process.namespace is None:",
        tests=_WATCH,
        what="a process of another container is taken for one that has ended",
    ),
    Fault(
        file="rlinf/scheduler/process_watch.py",
        before='.rpartition(")")[2].split()',
        after='.partition(")")[2].split()',
        tests=_WATCH,
        what="a process name with a parenthesis is misread",
    ),
    Fault(
        file="rlinf/scheduler/process_watch.py",
        before="        self._loop.call_later(_GRACE_SECONDS, on_end)",
        after="        del on_end",
        tests=_WATCH,
        what="the end of a process is not told",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="        if sender.uid in self._dead:\n            return  # it was given up",
        after="        if sender.uid in ():\n            return  # it was given up",
        tests=_GIVEN_UP,
        what="a process that was declared dead is served",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="        if kind == _REQUEST and isinstance(payload, UnreadableFrames):",
        after="        if kind == _NOTICE and isinstance(payload, UnreadableFrames):",
        tests=_GIVEN_UP,
        what="a channel stores an item that cannot be read",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="            error = self._dead.get(uid) or self._run_error\n        return error or",
        after="            error = self._run_error\n        return error or",
        tests=_GIVEN_UP,
        what="an unreadable message of a dead sender is not its death",
    ),
    Fault(
        file="rlinf/scheduler/comm/endpoint.py",
        before="self._news.wait_for(lambda: uid in self._dead or self._run_error or self._closed, _NEWS_SECONDS)",
        after="pass",
        tests=_GIVEN_UP,
        what="the news of a death are not waited for",
    ),
    Fault(
        file="rlinf/scheduler/comm/transport.py",
        before="        if self.farewell_seconds:\n",
        after="        if False:\n",
        tests=_GIVEN_UP,
        what="a process of another node does not hear that it was given up",
    ),
    Fault(
        file="rlinf/scheduler/runtime.py",
        before="    if uid == endpoint.info.uid:\n",
        after="    if uid is None:\n",
        tests=_GIVEN_UP,
        what="a process that was given up lives on",
    ),
    Fault(
        file="rlinf/scheduler/manager.py",
        before="        if uid is not None and reason is None:",
        after="        if uid is None:",
        tests=_GIVEN_UP,
        what="a process that leaves in good order is told to end",
    ),
    Fault(
        file="rlinf/scheduler/gcs_watch.py",
        before="            elif time.monotonic() - seen > self._patience_seconds:",
        after="            elif time.monotonic() > seen:",
        tests=_GCS,
        what="a service that is away for a moment is lost",
    ),
    Fault(
        file="rlinf/scheduler/gcs_watch.py",
        before="                self._on_loss(self._error())\n",
        after="",
        tests=_GCS,
        what="the loss of a service is not told",
    ),
    Fault(
        file="rlinf/scheduler/gcs_watch.py",
        before="        self._closed.set()\n",
        after="",
        tests=_GCS,
        what="a service is watched after the end of the run",
    ),
    Fault(
        file="rlinf/utils/signals.py",
        before="    if not _Held.depth:\n        raise interrupt",
        after="    if True:\n        raise interrupt",
        tests=(*_SIGNALS, *_STEPS),
        what="an interrupt tears apart what belongs together",
    ),
    Fault(
        file="rlinf/utils/signals.py",
        before="        if not _Held.depth and _Held.due is not None:",
        after="        if _Held.depth and _Held.due is not None:",
        tests=_SIGNALS,
        what="an interrupt that was held back comes too early or never",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before="            self.metrics, self.is_logged = metrics, False\n",
        after="            self.metrics = metrics\n",
        tests=_STEPS,
        what="the step that an interrupt ends is not recorded",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before="self.training, self.receivers_synced = None, False",
        after="self.receivers_synced = False",
        tests=_STEPS,
        what="a training that died is waited for at an interrupt",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before="self.training, self.receivers_synced = None, False",
        after="self.training = None",
        tests=_STEPS,
        what="a rollout that is launched again gets what is trained alone",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before="        self.receivers_synced = True\n",
        after="",
        tests=_STEPS,
        what="all weights are sent after every step",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before='        if "actor" in self.lost:\n            self.logger.message',
        after="        if False:\n            self.logger.message",
        tests=_STEPS,
        what="an actor without weights is saved at an interrupt",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before="        if not self.is_logged:\n",
        after="        if True:\n",
        tests=_STEPS,
        what="a step is logged again after a death in its checkpoint",
    ),
    Fault(
        file="rlinf/runners/step_runner.py",
        before=" and self.evaluated_step != self.step:",
        after=":",
        tests=_STEPS,
        what="a step is evaluated and logged again after a death in the next one",
    ),
]
