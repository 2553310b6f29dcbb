"""Cases for coordinators: every state with every request, and long rows of requests.

In commands as `tests.kafka.CoordinatorAnswers` takes them. Where nothing else is said, a producer
has id 500 and epoch E, the clock stands at NOW_MS, and partition t-0 is in the transaction.
"""

from __future__ import annotations

from itertools import product
from random import Random
from typing import TYPE_CHECKING

from storage.formats.transaction_state import TransactionState, TransactionStatus
from storage.producers.transaction_metadata import PREPARED
from tests.coordinators import value_of
from tests.kafka import coordinator_answers

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_MS = 1_800_000_000_000
TIMEOUT_MS = 60_000
EXPIRATION_MS = 604_800_000
NEW_ID = 900  # the next one that is given out
PRODUCER_ID = 500
OLD_ID = 400  # had the transactional id before
NEXT_ID = 800  # goes on with it when the transaction is complete
EPOCHS = (0, 7, 32765, 32766, 32767)
STATUSES = tuple(TransactionStatus)[:6]
WRITTEN_MS = NOW_MS - 1000


def state_of(
    status: TransactionStatus,
    epoch: int,
    client_version: int,
    *,
    previous_id: int = PRODUCER_ID,
    next_id: int = -1,
    value_version: int = 1,
    timeout_ms: int = TIMEOUT_MS,
) -> TransactionState:
    """A record as a coordinator has written it."""
    is_empty = status is TransactionStatus.EMPTY
    is_open = TransactionStatus.ONGOING <= status <= TransactionStatus.PREPARE_ABORT
    return TransactionState(
        transactional_id="a",
        version=value_version,
        producer_id=PRODUCER_ID,
        previous_producer_id=previous_id,
        next_producer_id=next_id,
        producer_epoch=epoch,
        next_producer_epoch=-1,
        timeout_ms=timeout_ms,
        transaction_status=status,
        partitions=None if is_empty else (("t", 0),) if is_open else (),
        last_update_timestamp_ms=WRITTEN_MS,
        start_timestamp_ms=-1 if is_empty else WRITTEN_MS - 500,
        client_transaction_version=client_version,
    )


def states() -> Iterator[tuple[TransactionState, int]]:
    """Each with the epoch before it, as a coordinator that did not start anew may remember it."""
    for status, epoch, client_version in product(STATUSES, EPOCHS, (0, 2)):
        if not client_version:
            yield state_of(status, epoch, 0, value_version=0), -1
        lasts = {-1, epoch - 1} if epoch else {-1, 32766}
        for last_epoch in sorted(lasts):
            for previous_id in (PRODUCER_ID, OLD_ID) if not epoch else (PRODUCER_ID,):
                yield (
                    state_of(status, epoch, client_version, previous_id=previous_id),
                    last_epoch,
                )
        if client_version and status in PREPARED:
            yield state_of(status, epoch, client_version, next_id=NEXT_ID), epoch - 1


def _producers(epoch: int) -> list[tuple[int, int]]:
    found = [(PRODUCER_ID, epoch), (PRODUCER_ID + 1, epoch), (OLD_ID, 32765), (OLD_ID, 32766)]
    others = (epoch - 2, epoch - 1, epoch + 1, 32766)
    found += [(PRODUCER_ID, each) for each in others if 0 <= each < 32768 and each != epoch]
    return found


def requests(state: TransactionState, cluster_version: int) -> Iterator[str]:
    """Everything that may happen to an id in a state."""
    producers = _producers(state.producer_epoch)
    yield "init a 30000"
    for producer_id, epoch in producers:
        yield f"init a 30000 {producer_id} {epoch}"
    for (producer_id, epoch), version in product(producers, sorted({0, cluster_version})):
        who = f"a {producer_id} {epoch} {version}"
        if version == cluster_version:
            yield f"add {who} t:0"
        if (producer_id, epoch) == (PRODUCER_ID, state.producer_epoch):
            yield f"add {who} t:1"
            yield f"add {who} t:0 t:1"
        yield f"end {who} commit"
        yield f"end {who} abort"
    yield "finish"
    start_ms, expires_ms = WRITTEN_MS - 500, WRITTEN_MS + EXPIRATION_MS
    for late_ms in (start_ms + TIMEOUT_MS, start_ms + TIMEOUT_MS + 1):
        yield f"now {late_ms};timeouts"
    for late_ms in (expires_ms - 1, expires_ms):
        yield f"now {late_ms};expire"


def table() -> Iterator[str]:
    """Every state with everything that may happen to it, under both kinds of cluster."""
    for (state, last_epoch), version in product(states(), (0, 2)):
        if state.client_transaction_version > version:
            continue  # Kafka cannot write it
        begin = (
            f"version {version};now {NOW_MS};next {NEW_ID};load a {last_epoch} {value_of(state)}"
        )
        for request in requests(state, version):
            yield f"{begin};{request}"
    yield from _timeouts_of_two_phase_commit()
    for version in (0, 1, 2):
        begin = f"version {version};now {NOW_MS};next {NEW_ID}"
        for timeout_ms in (0, 1, 900_000, 900_001):
            yield f"{begin};init a {timeout_ms}"
        yield f"{begin};init a 30000 {PRODUCER_ID} 5"
        yield f"{begin};add a {NEW_ID} 0 {version} t:0"
        yield f"{begin};end a {NEW_ID} 0 {version} abort"


def _timeouts_of_two_phase_commit() -> Iterator[str]:
    """A transaction without timeout is ended by nobody but its producer (KIP-939)."""
    late_ms = NOW_MS + 2**31
    for timeout_ms in (2**31 - 2, 2**31 - 1):
        state = state_of(TransactionStatus.ONGOING, 7, 2, timeout_ms=timeout_ms)
        yield f"version 2;now {late_ms};next {NEW_ID};load a -1 {value_of(state)};timeouts"


def rows(random: Random, count: int, length: int) -> Iterator[str]:
    """Rows of requests with two ids, mostly of producers that are right."""
    for _ in range(count):
        yield ";".join(_row(random, length))


def _row(random: Random, length: int) -> Iterator[str]:
    version = random.choice([0, 1, 2, 2])
    now_ms = NOW_MS
    yield f"version {version};now {now_ms};next {NEW_ID}"
    start = random.choice([0, 32760, 32764])
    if start:
        written_version = 2 if version == 2 and random.random() < 0.5 else 0
        state = state_of(TransactionStatus.EMPTY, start, written_version)
        yield f"load a -1 {value_of(state)}"
    guesses = {"a": [PRODUCER_ID if start else NEW_ID, start], "b": [NEW_ID + 1, 0]}
    for _ in range(length):
        name = random.choice("aab")
        guess = guesses[name]
        client = random.choice([version, version, 0]) if version == 2 else 0
        step = random.choice([0, 0, 0, 0, 0, 0, 1, -1])
        who = f"{name} {guess[0]} {min(max(guess[1] + step, 0), 32767)}"
        match random.choice(["init", "resume", "add", "add", "end", "end", "end", "time"]):
            case "init":
                yield f"init {name} 30000"
                guess[1] += 1
            case "resume":
                yield f"init {name} 30000 {' '.join(who.split()[1:])}"
                guess[1] += 1
            case "add":
                yield f"add {who} {client} t:{random.randrange(3)} t:{random.randrange(3)}"
            case "end":
                yield f"end {who} {client} {random.choice(['commit', 'abort'])}"
                guess[1] += client // 2
            case _:
                now_ms += random.choice([1, 1, 40_000, EXPIRATION_MS])
                yield f"now {now_ms};{random.choice(['timeouts', 'timeouts', 'expire'])}"
                guess[1] += 1
        if guess[1] > 32766:
            guess[0], guess[1] = random.choice(range(NEW_ID, NEW_ID + 4)), 0


def note_answers() -> None:
    """Ask Kafka's coordinator again, and keep what it says."""
    coordinator_answers.note([*table(), *rows(Random(3), 150, 25)])
