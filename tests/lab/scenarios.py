"""Courses of events, for a simulated cluster and for real brokers: steps, and what is compared.

A course is a line of text. Steps are parted by `;`, and after each of them nothing happens any more
before the next one; what is joined by `&` follows at once. Three brokers, one partition:

  send VALUE COUNT ACKS        a client sends so many records; it does not try again
  batch ID EPOCH SEQUENCE COUNT [TIMEOUT_MS]   an idempotent producer's batch, with acks=all
  batch-at N ID EPOCH SEQUENCE COUNT           the same to broker N, whoever leads
  begin-batch ID EPOCH SEQUENCE COUNT          it is appended; its answer is not waited for
  answer                       what that batch is answered, or that its connection ended
  begin-txn VALUE COUNT        a transactional producer sends so many records in a transaction
  end-txn commit|abort         it ends it
  read                         a read_committed consumer reads all that it is given
  kill N, stop N, start N      a broker
  pause N, resume N            it neither fetches nor is heard of; its connections stay
  set KEY=VALUE                of the topic
  elect                        an unclean election is asked for

Compared are facts without times: the answer to each sending; after each step who leads, the ISR,
and each running broker's log end and checkpointed high watermark; and at the end each state of the
partition in the controller's log, where replicas were cut, all records of each replica, and its
leader epochs. Of a transactional batch only that: the client of the real brokers speaks the protocol
before KIP-890, which raises no epoch, and has another producer id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from storage.dirs.cluster_image import ClusterImage
from storage.file_names import LEADER_EPOCHS_NAME, TopicPartition
from storage.formats import cluster_metadata
from tests.writing import partition_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


TOPIC = "t"
T0 = TopicPartition(TOPIC, 0)
BROKERS = (0, 1, 2)
SESSION_MS = 9000  # Kafka's default
LAG_MS = 20_000
TIMEOUT_MS = 30_000
NEVER_MS = 3_600_000  # no course lasts so long
TRANSACTION_TIMEOUT_MS = 900_000  # nor so long a transaction
TRANSACTIONAL_ID = "course"
IN_TRANSACTION = (-2, -2, -2)


class Scenario(NamedTuple):
    """What happens, with what set.

    Attributes:
        shows: answers, cuts and the like that it is there for, some of `Facts.told`.
        session_ms: broker.session.timeout.ms.
        lag_ms: replica.lag.time.max.ms.
    """

    steps: str
    shows: tuple[str, ...] = ()
    min_insync: int = 2
    has_elr: bool = False
    session_ms: int = SESSION_MS
    lag_ms: int = LAG_MS

    @property
    def has_transactions(self) -> bool:
        """Some of it is sent in transactions."""
        return "begin-txn" in self.steps

    def groups(self) -> Iterator[list[list[str]]]:
        """Steps that follow at once, as words."""
        for group in self.steps.split(";"):
            yield [each.split() for each in group.split("&")]


class State(NamedTuple):
    """What the controller has of the partition."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    elr: tuple[int, ...]
    last_known: tuple[int, ...]
    is_recovering: bool

    def is_way(self, before: State, after: State) -> bool:
        """Whether members of the ISR have joined in an order that is nobody's rule."""
        if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
            return False
        return {*before.isr} < {*self.isr} < {*after.isr}


class Stand(NamedTuple):
    """What is so once nothing happens any more; `offsets`: log end and high watermark by broker."""

    leader: int
    isr: tuple[int, ...]
    offsets: dict[int, tuple[int, int]]


class Kept(NamedTuple):
    """A record of a replica; of a marker its key is taken for the value."""

    offset: int
    leader_epoch: int
    producer: tuple[int, int, int]
    value: bytes | None


class Facts(NamedTuple):
    """All that is compared at the end; `cuts` are where a broker cut its log."""

    answers: list[str]
    states: list[State]
    cuts: list[tuple[int, int]]
    records: dict[int, list[Kept]]
    epochs: dict[int, bytes]

    @property
    def reported(self) -> set[str]:
        """In words, for `Course.shows`."""
        return {
            *self.answers,
            *(f"{broker} cuts at {offset}" for broker, offset in self.cuts),
            *(f"{each.leader} leads in {each.leader_epoch}" for each in self.states),
        }


class Sending(NamedTuple):
    """A batch of an idempotent producer; `broker`: None for who leads."""

    identity: tuple[int, int, int]
    records_count: int
    timeout_ms: int = TIMEOUT_MS
    broker: int | None = None

    @classmethod
    def of_words(cls, words: list[str], broker: int | None = None) -> Sending:
        """Id, epoch, sequence and count, perhaps a timeout, as they are written."""
        producer, epoch, sequence, count, *timeouts = map(int, words)
        timeout_ms = timeouts[0] if timeouts else TIMEOUT_MS
        return cls((producer, epoch, sequence), count, timeout_ms, broker)


class Stage(Protocol):
    """A cluster that a course is played on."""

    def send(self, value: str, count: int, acks: int) -> str:
        """Send records; returns the offset of the first, or the name of the error."""

    def begin(self, sending: Sending) -> None:
        """Send a batch; if its broker leads, it is appended when this returns."""

    def answer(self) -> str:
        """Wait for the answer to it: its offset, or the name of the error."""

    def begin_transaction(self, value: str, count: int) -> str:
        """Send records in a new transaction; returns the offset of the first."""

    def end_transaction(self, *, is_commit: bool) -> None:
        """End it; it is decided when this returns."""

    def read(self) -> str:
        """Count what a read_committed consumer is given: `read 5`."""

    def act(self, action: str, target: str) -> None:
        """Do anything else."""

    def log_dir(self, broker: int) -> Path:
        """Of a broker."""


def simulate(stage: Stage, group: list[list[str]]) -> Iterator[str]:
    """Play steps that follow at once; gives the answers."""
    for step in group:
        action, *words = step
        if action == "send":
            value, count, acks = words
            yield stage.send(value, int(count), int(acks))
        elif action in {"batch", "batch-at"}:
            broker = int(words.pop(0)) if action == "batch-at" else None
            stage.begin(Sending.of_words(words, broker))
            yield stage.answer()
        elif action == "begin-batch":
            stage.begin(Sending.of_words(words)._replace(timeout_ms=NEVER_MS))
        elif action == "answer":
            yield stage.answer()
        elif action == "begin-txn":
            value, count = words
            yield stage.begin_transaction(value, int(count))
        elif action == "end-txn":
            stage.end_transaction(is_commit=words == ["commit"])
        elif action == "read":
            yield stage.read()
        else:
            stage.act(action, "".join(words))


# -- what is on the disk


def offsets_of(log_dir: Path) -> tuple[int, int]:
    """Log end and checkpointed high watermark."""
    partition = partition_at(log_dir / f"{TOPIC}-0")
    end = partition.log_end()
    return 0 if end is None else end.offset, partition.high_watermark or 0


def records_of(log_dir: Path) -> list[Kept]:
    """All records of a replica."""
    found = []
    for placed in partition_at(log_dir / f"{TOPIC}-0").read(0):
        header = placed.batch.header
        assert placed.batch.crc_ok
        for record in placed.segment.records(placed.batch):
            sequence = header.base_sequence
            if sequence >= 0:
                sequence += record.offset - header.base_offset
            producer = (header.producer_id, header.producer_epoch, sequence)
            if header.is_transactional:
                producer = IN_TRANSACTION
            value = record.key if header.is_control else record.value
            found.append(Kept(record.offset, header.partition_leader_epoch, producer, value))
    return found


def epochs_of(log_dir: Path) -> bytes:
    """Its leader-epoch-checkpoint."""
    return (log_dir / f"{TOPIC}-0" / LEADER_EPOCHS_NAME).read_bytes()


def states_of(controller_dir: Path) -> list[State]:
    """Each state of the partition, as the controller's log has them.

    Of several that joined one after the other only who was there before and after.
    """
    image = ClusterImage()
    states: list[State] = []
    for record in metadata_of(controller_dir):
        image.replay(record)
        found = image.partition(TOPIC, 0)
        if found is None:
            continue
        state = State(
            found.leader,
            tuple(sorted(found.isr)),
            found.leader_epoch,
            tuple(sorted(found.elr)),
            tuple(found.last_known_elr),
            found.is_recovering,
        )
        if not states or states[-1] != state:
            states.append(state)
    return [
        state
        for place, state in enumerate(states)
        if not 0 < place < len(states) - 1 or not state.is_way(states[place - 1], states[place + 1])
    ]


def metadata_of(controller_dir: Path) -> Iterator[cluster_metadata.MetadataRecord]:
    """The records of a controller's log."""
    for placed in partition_at(controller_dir / "__cluster_metadata-0").read(0):
        if not placed.batch.header.is_control:
            for record in placed.segment.records(placed.batch):
                yield cluster_metadata.parse_record(record.value)


def facts_of(
    stage: Stage, answers: list[str], states: list[State], cuts: Mapping[int, list[int]]
) -> Facts:
    """What is to be compared, with what is on the disks."""
    dirs = {each: stage.log_dir(each) for each in BROKERS}
    return Facts(
        answers=answers,
        states=states,
        cuts=[(broker, each) for broker in BROKERS for each in cuts.get(broker, ())],
        records={each: records_of(path) for each, path in dirs.items()},
        epochs={each: epochs_of(path) for each, path in dirs.items()},
    )


SCENARIOS = {
    "a follower is away": Scenario(
        "send a 3 -1; kill 2; send b 3 -1; start 2; send c 1 -1", ("0", "3", "6")
    ),
    "a leader is killed and comes back": Scenario(
        "send a 3 -1; kill 0; send b 2 -1; start 0; send c 1 -1; kill 1; send d 1 -1",
        ("1 leads in 1", "0 leads in 2"),
    ),
    "acks=1 is lost with its leader": Scenario(
        "send a 3 -1; pause 1 & pause 2 & send x 4 1 & kill 0 & resume 1 & resume 2;"
        " send b 2 -1; start 0; send c 1 -1",
        ("3", "0 cuts at 3"),
    ),
    "the last one in sync comes back last": Scenario(
        "send a 2 -1; kill 2; send b 2 -1; kill 1; send x 1 -1; send c 2 1; kill 0; start 2;"
        " start 1; start 0; send d 1 -1",
        ("NOT_ENOUGH_REPLICAS", "-1 leads in 1", "0 leads in 2"),
    ),
    "the last one in sync comes back first": Scenario(
        "send a 2 -1; kill 2; send b 2 -1; kill 1; send c 2 -1; kill 0; start 0; send d 1 -1;"
        " start 1; start 2",
        ("0 leads in 2",),
        min_insync=1,
    ),
    "an answer that comes too late": Scenario(
        "send a 2 -1; pause 2 & batch 7 0 0 2 1000; send b 1 -1; resume 2; send c 1 -1",
        ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS"),
        min_insync=3,
    ),
    "a batch waits while too few are in sync": Scenario(
        "send a 3 -1; pause 2 & begin-batch 7 0 0 2; send x 1 -1; resume 2 & answer; send b 1 -1",
        ("NOT_ENOUGH_REPLICAS", "3", "5"),
        min_insync=3,
    ),
    "a leader drops who does not fetch while a batch waits for them": Scenario(
        "send a 3 -1; pause 1 & pause 2 & begin-batch 7 0 0 2; send x 1 -1; resume 1 & resume 2"
        " & answer; send b 1 -1",
        ("NOT_ENOUGH_REPLICAS", "3", "5"),
        session_ms=60_000,
        lag_ms=12_000,
    ),
    "who does not lead is asked": Scenario(
        "send a 3 -1; batch-at 1 7 0 0 2; batch-at 0 7 0 0 2; kill 0; batch-at 2 7 0 2 1;"
        " batch-at 1 7 0 2 1; start 0; batch-at 0 7 0 3 1; batch 7 0 3 1",
        ("NOT_LEADER_OR_FOLLOWER", "3", "5", "6", "1 leads in 1"),
    ),
    "a leader that was silent leads no more, and a batch waits for it": Scenario(
        "send a 3 -1; pause 1 & pause 2 & begin-batch 7 0 0 2 & pause 0 & resume 1 & resume 2;"
        " resume 0 & answer; batch 7 0 0 2; send b 1 -1",
        ("NOT_LEADER_OR_FOLLOWER", "1 leads in 1", "0 cuts at 3", "3"),
    ),
    "a leader is killed while a batch waits for it": Scenario(
        "send a 3 -1; pause 1 & pause 2 & begin-batch 7 0 0 2 & kill 0 & answer & resume 1"
        " & resume 2; batch 7 0 0 2; start 0; send b 1 -1",
        ("NETWORK_EXCEPTION", "1 leads in 1", "0 cuts at 3", "3"),
    ),
    "a leader dies in a transaction": Scenario(
        "begin-txn a 3; end-txn commit; begin-txn b 2; send x 1 -1; read; kill 0; read;"
        " send y 1 -1; end-txn abort; read; start 0; begin-txn c 1; end-txn commit;"
        " read; kill 1; read; send z 1 -1; read",
        ("0", "4", "6", "read 3", "read 5", "read 6", "read 7", "1 leads in 1"),
    ),
    "an unclean election": Scenario(
        "send a 3 -1; kill 2; send b 3 -1; kill 1; send c 4 1; kill 0; start 1; start 2; elect;"
        " send d 2 -1; start 0; send e 1 -1",
        ("1 leads in 2", "0 cuts at 6"),
    ),
    "unclean elections are allowed": Scenario(
        "send a 3 -1; kill 2; kill 1; send c 4 1; kill 0; start 2;"
        " set unclean.leader.election.enable=true; send d 2 -1; start 1; start 0; send e 1 -1",
        ("2 leads in 2", "0 cuts at 3"),
        min_insync=1,
    ),
    "the last known leader": Scenario(
        "send a 3 -1; kill 2; send b 3 -1; kill 1; kill 0; start 1; start 2; start 0; send c 1 -1",
        ("0 leads in 2",),
        has_elr=True,
    ),
    "an eligible one leads": Scenario(
        "send a 3 -1; kill 2; send b 3 -1; stop 1; send x 1 -1; kill 0; start 1; start 2;"
        " send c 1 -1; start 0",
        ("NOT_ENOUGH_REPLICAS",),
        has_elr=True,
    ),
    "what was sent before is known": Scenario(
        "batch 7 0 0 3; batch 7 0 3 2; kill 0; batch 7 0 3 2; batch 7 0 5 1; batch 7 0 9 1;"
        " start 0; kill 1; batch 7 0 5 1; batch 7 0 6 1; start 1; batch 7 1 0 1; batch 7 0 7 1",
        ("3", "5", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"),
    ),
    "all are started again, and know the last batch of a producer only": Scenario(
        "batch 7 0 0 1; batch 7 0 1 1; kill 2; kill 1; kill 0; start 0; start 1; start 2;"
        " batch 7 0 0 1; batch 7 0 1 1; batch 7 0 2 1",
        ("0", "1", "OUT_OF_ORDER_SEQUENCE_NUMBER", "2"),
    ),
    "min.insync.replicas is lowered": Scenario(
        "send a 3 -1; kill 2; kill 1; send x 1 -1; send b 2 1; set min.insync.replicas=1;"
        " send c 1 -1; start 1; set min.insync.replicas=3; send y 1 -1; start 2; send d 1 -1",
        ("NOT_ENOUGH_REPLICAS", "5"),
    ),
    "leaders are stopped": Scenario(
        "send a 3 -1; stop 0; send b 2 -1; start 0; stop 2; send c 2 -1; stop 1; send d 1 1;"
        " start 1; start 2; send e 1 -1",
        ("1 leads in 1", "0 leads in 2"),
    ),
    "the last one is stopped": Scenario(
        "send a 3 -1; stop 2; stop 1; send b 2 1; stop 0; start 1; start 0; start 2; send c 1 -1",
        ("-1 leads in 1", "0 leads in 2"),
    ),
}
