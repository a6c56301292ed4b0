"""The scheduler of an in-process engine: which sequences run, which wait, when they end. Runs on one thread."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rlinf.data.messages.generation import EngineStats, GenerationRequest, GenerationResult
from rlinf.errors import EngineError, WeightSyncError
from rlinf.hybrid_engines.generation.executor_thread import ThreadFuture
from rlinf.hybrid_engines.generation.generation_engine import PauseMode
from rlinf.hybrid_engines.generation.model_folder import load_decoder, read_end_ids
from rlinf.hybrid_engines.generation.model_runner import ModelRunner, RunnerLimits
from rlinf.hybrid_engines.generation.token_sequence import Decode, TokenSequence, sampling_seed
from rlinf.hybrid_engines.weights.bucket import Manifest, WeightUpdate


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A request, its sequences and the future of its result."""

    request: GenerationRequest
    sequences: list[TokenSequence]
    reply: ThreadFuture[GenerationResult]


class EngineScheduler:
    """Queues sequences, admits them to the model runner, and finishes them.

    A sequence is in one of three places: running, in the queue (accepted, also while a pause holds it), or set aside
    (it arrived while the engine was paused).

    Args:
        model_runner: Generates.
        model_path: Folder with the model and its tokenizer.
        seed: Of requests that have none of their own.
        max_context_tokens: Most tokens of a prompt and its response together.
    """

    def __init__(self, model_runner: ModelRunner, *, model_path: Path, seed: int, max_context_tokens: int) -> None:
        self.model_runner = model_runner
        self.version = -1
        self._model_path = model_path
        self._seed = seed
        self._max_context_tokens = max_context_tokens
        self._limits = RunnerLimits(vocab_size=0, max_running=0)
        self._end_ids: frozenset[int] = frozenset()
        self._decode: Decode | None = None
        self._keys = itertools.count()
        self._seeds = itertools.count()
        self._entries: dict[str, _Entry] = {}
        self._running: dict[int, TokenSequence] = {}
        self._queue: deque[TokenSequence] = deque()
        self._set_aside: list[TokenSequence] = []
        self._paused = False
        self._draining: list[ThreadFuture[None]] = []
        self._asleep = False
        self._update: WeightUpdate | None = None
        self._weights_complete = True
        self._num_generated_tokens = 0

    def load(self) -> RunnerLimits:
        """Load the model."""
        self._end_ids = read_end_ids(self._model_path)
        self._limits = self.model_runner.load()
        return self._limits

    # ------------------------------------------------------------------------------------------------ requests

    def enter(self, request: GenerationRequest, reply: ThreadFuture[GenerationResult]) -> None:
        """Accept a request, or reject its future."""
        try:
            if request.request_id in self._entries:
                raise EngineError(f"Request '{request.request_id}' is already running; choose another id.")
            self.check_weights()
            self.model_runner.check(request)
        except EngineError as error:
            reply.reject(error)
            return
        if request.params.stop and self._decode is None:
            self._decode = load_decoder(self._model_path)
        first = request.params.first_index
        sequences = [self._new_sequence(request, first + number) for number in range(request.params.n)]
        self._entries[request.request_id] = _Entry(request=request, sequences=sequences, reply=reply)
        (self._set_aside if self._paused or self._draining else self._queue).extend(sequences)

    def _new_sequence(self, request: GenerationRequest, index: int) -> TokenSequence:
        params = request.params
        origin = (self._seed, -1, next(self._seeds)) if params.seed is None else (params.seed, index)
        return TokenSequence(
            key=next(self._keys),
            request_id=request.request_id,
            prompt_ids=request.prompt_ids,
            images=request.images,
            params=params,
            limit=min(params.max_new_tokens, self._max_context_tokens - len(request.prompt_ids)),
            end_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._end_ids),
            seed=sampling_seed(*origin),
            decode=self._decode,
        )

    def abandon(self, reply: ThreadFuture[GenerationResult]) -> None:
        """Abort the request whose caller was cancelled."""
        self.abort([name for name, entry in self._entries.items() if entry.reply is reply])

    def abort(self, request_ids: Iterable[str] | None = None) -> None:
        """End requests with what they have.

        Args:
            request_ids: Which; unknown ones are passed over. None ends all.
        """
        names = list(self._entries) if request_ids is None else [n for n in request_ids if n in self._entries]
        sequences = [sequence for name in names for sequence in self._entries[name].sequences]
        self._abort([sequence for sequence in sequences if sequence.finish_reason is None])

    def _abort(self, sequences: Sequence[TokenSequence]) -> None:
        for sequence in sequences:
            sequence.finish_reason = "abort"
        self._release([sequence for sequence in sequences if sequence.key in self._running])
        self._queue = deque(sequence for sequence in self._queue if sequence.finish_reason is None)
        self._set_aside = [sequence for sequence in self._set_aside if sequence.finish_reason is None]
        self._deliver(sequences)
        self._notice_drained()

    def _deliver(self, finished: Iterable[TokenSequence]) -> None:
        """Return the results of requests whose last sequence has finished."""
        for name in dict.fromkeys(sequence.request_id for sequence in finished):
            entry = self._entries[name]
            if all(sequence.finish_reason is not None for sequence in entry.sequences):
                del self._entries[name]
                completions = tuple(sequence.completion() for sequence in entry.sequences)
                entry.reply.resolve(GenerationResult(request_id=name, completions=completions))

    # ------------------------------------------------------------------------------------------------ generating

    def work(self) -> bool:
        """Advance the running sequences by one step; return whether there is more to do."""
        if self._held:
            return False
        self._admit()
        if not self._running:
            return False
        finished: list[TokenSequence] = []
        for key, token_id, logprob, full_logprob, routes in self.model_runner.step():
            sequence = self._running[key]
            # A model runner that runs ahead may return tokens after the end of a sequence.
            if sequence.finish_reason is not None:
                continue
            if routes is not None:
                sequence.add_routes(routes)
            sequence.append(token_id, logprob, full_logprob, self.version)
            self._num_generated_tokens += 1
            if sequence.finish_reason is not None:
                finished.append(sequence)
        if finished:
            self._release(finished)
            self._deliver(finished)
            self._notice_drained()
        return bool(self._running or self._queue)

    @property
    def _held(self) -> bool:
        return self._paused or self._asleep or self._update is not None or not self._weights_complete

    def _admit(self) -> None:
        room = self._limits.max_running - len(self._running)
        worthwhile = min(len(self._queue), self._limits.admission_size)
        if not self._queue or room < worthwhile:
            return
        sequences = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
        for sequence in sequences:
            sequence.key = next(self._keys)
            self._running[sequence.key] = sequence
        self.model_runner.add(sequences)

    def _release(self, sequences: Sequence[TokenSequence]) -> None:
        """Remove sequences from the model runner."""
        if sequences:
            keys = [sequence.key for sequence in sequences]
            for key in keys:
                del self._running[key]
            self.model_runner.remove(keys)

    def _evict(self) -> None:
        """Put running sequences back at the head of the queue, so that they start again with an empty cache."""
        running = list(self._running.values())
        self._release(running)
        self._queue.extendleft(reversed(running))

    # ------------------------------------------------------------------------------------------------ pausing

    def pause(self, mode: PauseMode, paused: ThreadFuture[None]) -> None:
        """Stop generating.

        Args:
            mode: What becomes of sequences in flight.
            paused: Resolved once nothing is being generated.
        """
        if mode == "wait" and not self._held:
            self._draining.append(paused)
            self._notice_drained()
            return
        if mode == "abort":
            self._abort([*self._running.values(), *self._queue])
        self._paused = True
        if self.model_runner.runs_ahead:
            self._evict()
        paused.resolve(None)
        self._resolve_draining()

    def resume(self) -> None:
        """Go on generating.

        Raises:
            EngineError: The weights are incomplete.
        """
        self.check_weights()
        self._paused = False
        self._resolve_draining()
        self._queue.extend(self._set_aside)
        self._set_aside = []

    def _notice_drained(self) -> None:
        if self._draining and not self._running and not self._queue:
            self._paused = True
            self._resolve_draining()

    def _resolve_draining(self) -> None:
        for waiting in self._draining:
            waiting.resolve(None)
        self._draining = []

    # ------------------------------------------------------------------------------------------------ weights

    @property
    def is_synced(self) -> bool:
        """Whether all weights are there from updates, and some of them can be replaced."""
        return self.version >= 0 and self._weights_complete and self.model_runner.takes_partial_updates

    def begin_update(self, manifest: Manifest) -> None:
        """Get ready for new weights.

        Raises:
            WeightSyncError: The version is an older one, the tensors are not the model's, sequences are running, or the
                weights that a partial update leaves out have never been sent.
        """
        if self._draining or not self._held:
            self._check_idle(WeightSyncError)
        update = WeightUpdate(manifest, current_version=self.version, is_complete=self.is_synced)
        self.model_runner.begin_update(manifest)
        self._evict()
        self._update = update
        self._weights_complete = False

    def load_bucket(self, index: int, bucket: torch.Tensor) -> None:
        """Load one bucket.

        Raises:
            WeightSyncError: The checksum is wrong, or no update has begun.
        """
        self.model_runner.load_weights(self._begun().take(index, bucket))

    def commit(self) -> None:
        """End the update.

        Raises:
            WeightSyncError: A bucket or a weight of the model is missing, or no update has begun.
        """
        update, self._update = self._begun(), None
        version = update.finish()
        self.model_runner.commit()
        self.version = version
        self._weights_complete = True

    def reset_version(self) -> None:
        """Forget the version, and an update that has begun and not ended."""
        self.version = -1
        self._update = None

    def sleep(self) -> None:
        """Give memory back.

        Raises:
            EngineError: Sequences are running.
        """
        if self._draining or not self._held:
            self._check_idle(EngineError)
        self._evict()
        self._weights_complete = self.model_runner.sleep() and self._weights_complete
        self._asleep = True

    def wake(self) -> None:
        """Take the memory again."""
        if self._asleep:
            self.model_runner.wake()
            self._asleep = False

    def check_weights(self) -> None:
        """Return if the weights are complete, or being replaced by an update that has begun.

        Raises:
            EngineError: They are not.
        """
        if not self._weights_complete and self._update is None and not self._asleep:
            raise self._incomplete()

    def _begun(self) -> WeightUpdate:
        if self._update is None:
            raise WeightSyncError("No weight update has begun; call begin_update() with its manifest first.")
        return self._update

    def _check_idle(self, error: type[EngineError | WeightSyncError]) -> None:
        if self._running or self._queue:
            count = len(self._running) + len(self._queue)
            raise error(f"{count} sequences are running; wait for them, or call pause() first.")

    def _incomplete(self) -> EngineError:
        return EngineError(
            "The engine's weights are incomplete, since an update failed or the memory of the weights was given back; "
            "send a complete update."
        )

    # ------------------------------------------------------------------------------------------------ the rest

    def stats(self) -> EngineStats:
        """Return the engine's counters."""
        return EngineStats(
            num_running=len(self._running),
            num_waiting=len(self._queue) + len(self._set_aside),
            num_generated_tokens=self._num_generated_tokens,
            version=self.version,
        )

    def end(self, error: Callable[[], EngineError] | None) -> None:
        """Settle every pending future, and close the model runner.

        Args:
            error: Makes the error to raise; None aborts the sequences instead.
        """
        if error is None:
            self.abort()
            self._resolve_draining()
        else:
            for entry in self._entries.values():
                entry.reply.reject(error())
            for waiting in self._draining:
                waiting.reject(error())
        self.model_runner.close()
