"""The pure logic of channels."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf.errors import ChannelClosedError, WorkerDiedError
from rlinf.scheduler.channel.queue import _MAX_IDLE_LANES, ChannelQueue


class Box:
    """Collects the single answer of a request."""

    def __init__(self, on_answer: Callable[[], None] | Callable[..., None] = lambda: None) -> None:
        self.answers = []
        self.on_answer = on_answer

    def __call__(self, items: Any, error: Any) -> None:
        self.answers.append((list(items), error))
        self.on_answer()

    @property
    def payloads(self) -> list[Any]:
        ((items, error),) = self.answers
        assert error is None
        return [item.payload for item in items]

    @property
    def error(self) -> Any:
        ((_, error),) = self.answers
        return error


def put(
    queue: ChannelQueue[Any],
    payload: int | str,
    *,
    owner: str = "p",
    key: str | int = "k",
    weight: float = 1,
    wait: bool = True,
    request: int | str | None = None,
) -> Box:
    box = Box()
    queue.put(request or object(), owner, key, payload, weight=weight, wait=wait, answer=box)
    return box


def get(
    queue: ChannelQueue[Any],
    *,
    owner: str = "c",
    key: str | int = "k",
    target: int | None = None,
    wait: bool = True,
    request: str | int | tuple[str, int] | None = None,
    producer: str | None = None,
) -> Box:
    box = Box()
    queue.get(request or object(), owner, key, target_weight=target, wait=wait, answer=box, producer=producer)
    return box


DEATH = WorkerDiedError("gone", group="env", rank=0)


def test_items_of_a_dead_consumer_return_to_the_head_in_order() -> None:
    queue = ChannelQueue("q")
    for payload in (1, 2, 3):
        put(queue, payload)
    assert get(queue, owner="dead", request="a").payloads == [1]
    assert get(queue, owner="dead", request="b").payloads == [2]
    queue.acknowledge("dead", "a")
    queue.owner_gone("dead", DEATH, closed=False)
    assert [get(queue).payloads for _ in range(2)] == [[2], [3]]


def test_a_half_collected_batch_returns_when_its_getter_is_cancelled() -> None:
    queue = ChannelQueue("q")
    batch = get(queue, target=3, request="r")
    put(queue, 1)
    put(queue, 2)
    assert batch.answers == []
    queue.cancel("c", "r", "k")
    assert batch.answers == []
    assert [get(queue).payloads for _ in range(2)] == [[1], [2]]


def test_a_dead_producer_fails_only_waits_on_its_keys() -> None:
    queue = ChannelQueue("q")
    put(queue, 1, owner="dead", key="a")
    assert get(queue, key="a").payloads == [1]
    on_a, on_b = get(queue, key="a"), get(queue, key="b")
    queue.owner_gone("dead", DEATH, closed=False)
    assert on_a.error is DEATH
    assert on_b.answers == []
    assert get(queue, key="a").error is DEATH
    queue.group_started("env")
    assert get(queue, key="a").answers == []


def test_what_a_dead_producer_had_put_is_still_delivered() -> None:
    queue = ChannelQueue("q")
    put(queue, 1, owner="dead")
    queue.owner_gone("dead", DEATH, closed=False)
    assert get(queue).payloads == [1]
    assert get(queue).error is DEATH


def test_a_holder_that_dies_before_its_first_put_fails_waits_without_a_known_producer() -> None:
    queue = ChannelQueue("q")
    queue.open("dead")
    put(queue, 1, owner="alive", key="fed")
    get(queue, key="fed")
    fed, unfed = get(queue, key="fed"), get(queue, key="unfed")
    queue.owner_gone("dead", DEATH, closed=False)
    assert fed.answers == []
    assert unfed.error is DEATH


def test_a_named_producer_that_is_already_dead() -> None:
    queue = ChannelQueue("q")
    queue.owner_gone("dead", DEATH, closed=False)
    assert get(queue, producer="dead").error is DEATH


def test_a_producer_that_was_closed_fails_nothing() -> None:
    queue = ChannelQueue("q")
    put(queue, 1, owner="done")
    get(queue)
    waiting = get(queue)
    queue.owner_gone("done", DEATH, closed=True)
    assert waiting.answers == []


def test_a_dead_waiting_producer_leaves_the_line() -> None:
    queue = ChannelQueue("q", maxsize=1)
    put(queue, 1)
    lost = put(queue, 2, owner="dead")
    put(queue, 3)
    queue.owner_gone("dead", DEATH, closed=False)
    assert lost.answers == []
    assert [get(queue, producer=None).payloads for _ in range(2)] == [[1], [3]]


def test_closing_answers_everybody() -> None:
    queue = ChannelQueue("q", maxsize=1)
    put(queue, 1)
    blocked = put(queue, 2)
    batch = get(queue, key="other", target=5)
    put(queue, "part", key="other")
    queue.close()
    assert isinstance(blocked.error, ChannelClosedError)
    assert batch.payloads == ["part"]
    assert get(queue).payloads == [1]
    assert isinstance(get(queue).error, ChannelClosedError)


@pytest.mark.parametrize("weight", [0, -1, float("nan")])
def test_weights_must_be_positive(weight: float) -> None:
    assert isinstance(put(ChannelQueue("q"), 1, weight=weight).error, ValueError)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from("xy"), st.sampled_from("ab")),
            st.tuples(st.just("get"), st.sampled_from("xy"), st.sampled_from("ab")),
            st.tuples(st.just("batch"), st.sampled_from("xy"), st.sampled_from("ab")),
            st.tuples(st.just("cancel"), st.sampled_from("xy"), st.integers(0, 30)),
        ),
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_every_item_is_delivered_at_most_once_in_order_and_none_is_lost(steps: Any, maxsize: int) -> None:
    queue = ChannelQueue("q", maxsize)
    puts, gets = [], []
    for number, (kind, owner, arg) in enumerate(steps):
        if kind == "put":
            puts.append((number, arg, put(queue, number, owner=f"p{owner}", key=arg, request=number)))
        elif kind == "cancel":
            for key in "ab":
                queue.cancel(f"c{owner}", arg, key)
        else:
            box = Box(on_answer=lambda c=f"c{owner}", n=number: queue.acknowledge(c, n))
            target = 2 if kind == "batch" else None
            queue.get(number, f"c{owner}", arg, target_weight=target, wait=True, answer=box)
            gets.append((arg, box))
    assert all(len(box.answers) <= 1 for *_, box in [*puts, *gets])
    accepted = {key: [n for n, k, box in puts if k == key and box.answers] for key in "ab"}
    queue.close()
    for key in "ab":
        delivered = [item.payload for k, box in gets if k == key for items, _ in box.answers for item in items]
        rest = []
        while (box := get(queue, key=key)).error is None:
            rest += box.payloads
        assert sorted(delivered + rest) == accepted[key]
        assert rest == sorted(rest)


def test_a_put_that_only_a_dead_consumer_would_make_room_for_fails() -> None:
    queue = ChannelQueue("q", maxsize=1)
    assert put(queue, 0, key="k").answers
    assert get(queue, owner="dead", request="a").payloads == [0]
    queue.acknowledge("dead", "a")
    put(queue, 1)
    waiting = put(queue, 2)
    queue.owner_gone("dead", DEATH, closed=False)
    assert waiting.error is DEATH
    assert put(queue, 3).error is DEATH
    # Somebody else makes room, or the dead one's group is launched again.
    assert get(queue, owner="other").payloads == [1]
    assert put(queue, 4).answers
    again = put(queue, 5)
    assert again.answers == []
    queue.owner_gone("other", DEATH, closed=False)
    assert again.error is DEATH
    queue.group_started(DEATH.group)
    assert put(queue, 6).answers == []


def test_a_put_waits_on_while_another_consumer_lives() -> None:
    queue = ChannelQueue("q", maxsize=1)
    getters = [get(queue, owner=owner) for owner in ("dead", "alive")]
    for payload in range(3):
        put(queue, payload)
    waiting = put(queue, 3)
    queue.owner_gone("dead", DEATH, closed=False)
    assert waiting.answers == []
    # What the dead one had not acknowledged came back to the head.
    assert [getter.payloads for getter in getters] == [[0], [1]]
    assert get(queue, owner="alive").payloads == [0]


def test_a_put_does_not_fail_for_a_consumer_that_left_in_good_order() -> None:
    queue = ChannelQueue("q", maxsize=1)
    get(queue, owner="done")
    for payload in range(2):
        put(queue, payload)
    waiting = put(queue, 2)
    queue.owner_gone("done", DEATH, closed=True)
    assert waiting.answers == []


def test_what_is_given_back_takes_its_old_place() -> None:
    queue = ChannelQueue("q")
    for payload in range(5):
        put(queue, payload)
    for request in (1, 2, 3):
        get(queue, request=request)
    for request in (1, 3, 2):
        queue.cancel("c", request, "k")
    assert [get(queue).payloads for _ in range(5)] == [[0], [1], [2], [3], [4]]


def test_a_put_that_was_given_up_leaves_the_queue_unless_a_get_has_its_item() -> None:
    queue = ChannelQueue("q", maxsize=2)
    answers = [put(queue, number, request=f"put {number}") for number in range(4)]
    queue.cancel("p", "put 1", "k")
    assert answers[2].answers, "it has made room"
    queue.cancel("p", "put 3", "k")
    assert get(queue, request="r").payloads == [0]
    queue.cancel("p", "put 0", "k")
    queue.cancel("p", "put 0", "unknown")
    assert (queue.size("k"), get(queue).payloads, queue.size("k")) == (1, [2], 0)
    assert answers[3].answers == []


def test_gets_that_one_given_up_batch_would_serve_do_not_fail_for_a_dead_producer() -> None:
    queue = ChannelQueue("q")
    batch, after = get(queue, target=2), get(queue)
    put(queue, 1, owner="dead")
    queue.owner_gone("dead", DEATH, closed=False)
    assert batch.error is DEATH
    assert after.payloads == [1]


def test_keys_that_are_used_once_are_forgotten_and_those_in_use_are_not() -> None:
    queue = ChannelQueue("q")
    put(queue, "kept", key="full")
    waiting = get(queue, key="awaited", owner="w")
    put(queue, 0, owner="feeder", key="fed")
    get(queue, key="fed", request="f")
    for number in range(10_000):
        put(queue, number, key=number)
        assert get(queue, key=number, request=("get", number)).payloads == [number]
        queue.acknowledge("c", ("get", number))
        if number % 100 == 0:
            assert queue.size("fed") == 0
            put(queue, number, owner="feeder", key="fed")
            get(queue, key="fed")
    assert len(queue._lanes) <= 2 * _MAX_IDLE_LANES + 3
    assert get(queue, key="full").payloads == ["kept"]
    # A key in use keeps its producers; who fed a forgotten one may be who a get without a known producer waits for.
    unknown, fed = get(queue, key=0), get(queue, key="fed")
    queue.owner_gone("p", DEATH, closed=False)
    assert unknown.error is DEATH
    assert fed.answers == []
    assert waiting.error is DEATH
    queue.owner_gone("feeder", DEATH, closed=False)
    assert fed.error is DEATH


def test_a_closed_queue_is_spent_when_it_is_drained_or_held_by_nobody() -> None:
    queue = ChannelQueue("q")
    queue.open("driver")
    for payload in range(2):
        put(queue, payload)
    assert not queue.is_spent
    queue.close()
    get(queue, request=1)
    get(queue, request=2)
    queue.acknowledge("c", 1)
    assert not queue.is_spent, "the second may come back"
    queue.cancel("c", 2, "k")
    assert not queue.is_spent
    queue.leave("driver", passed_on=False)
    assert queue.is_spent


def test_a_closed_queue_waits_for_a_process_that_was_given_a_handle() -> None:
    queue = ChannelQueue("q")
    queue.open("driver")
    put(queue, 1)
    queue.close()
    queue.leave("driver", passed_on=True)
    assert not queue.is_spent
    queue.open("worker")
    queue.open("worker")
    queue.leave("worker", passed_on=False)
    assert not queue.is_spent
    queue.owner_gone("worker", DEATH, closed=True)
    assert queue.is_spent
