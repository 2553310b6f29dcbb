"""Benchmark scenarios: varied settings, fixed settings, and the results of the article.

"The article" is a published reliability study of Kafka 0.10.1 on four brokers of 24 cores each with
a network of 4 Gbit/s. Its figures are records per second of one synchronous producer with values of
1,000 bytes. They stand next to eoctl's figures to compare relations, not sizes.

A cell is one column of such a table: one topic and one producer with their settings.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


ACKS_ALL = -1
RETRIES_MAX = 100_000_000
MAX_TRANSACTIONS = 500  # per run, because a commit takes as long as a hundred records
BARE = "bare"


class BrokerFault(NamedTuple):
    """Fault that hits brokers during a run.

    Attributes:
        at_ratio: share of the records that is sent before the fault.
        kills: number of brokers to kill. 0 starts all dead brokers again.
        has_stall: the fault waits until no record was answered for a time, instead of `at_ratio`.
    """

    at_ratio: float
    kills: int
    has_stall: bool = False


class Article(NamedTuple):
    """Results of the article, in records per second, or latencies in milliseconds."""

    records_per_s: int | None = None
    send_ms: tuple[float, ...] = ()  # avg, min, max, p99, p99.99
    e2e_ms: tuple[float, ...] = ()


class Cell(NamedTuple):
    """Settings of a run.

    Attributes:
        name: name within the scenario, in lower case, as part of the topic name.
        acks: 0, 1, -1.
        is_bare: a loop without other work sends the same records, to show the cost of eoctl's load.
        is_java: Kafka's own producer sends the same records.
        rate_ratio: rate, as a share of the first cell's rate. 0 sends as fast as answers come.
        has_reader: a consumer also takes the times at which records arrive.
        txn_records: records of a transaction, 0 without transactions.
        txn_partitions: partitions of a transaction.
    """

    scenario: int
    name: str
    acks: int
    replication_factor: int
    min_insync: int
    partitions: int
    retries: int = 0
    is_idempotent: bool = False
    faults: tuple[BrokerFault, ...] = ()
    is_bare: bool = False
    is_java: bool = False
    rate_ratio: float = 0.0
    has_reader: bool = False
    txn_records: int = 0
    txn_partitions: int = 0
    article: Article = Article()

    @property
    def is_ours(self) -> bool:
        """True if eoctl's load sends it. The other cells are for comparison."""
        return not (self.is_bare or self.is_java)

    @property
    def can_warm(self) -> bool:
        """True if a warm-up run helps: at full speed, with all brokers."""
        return not (self.faults or self.rate_ratio)

    @property
    def may_double(self) -> bool:
        """True if duplicates are possible: with acks, and retries without idempotence."""
        return self.retries > 0 and not self.is_idempotent and self.acks != 0


ACKS_NAMES = {ACKS_ALL: "all", 0: "0", 1: "1"}
_ALL_1 = {(1, 1): 28511, (2, 1): 22359, (2, 2): 22928, (4, 1): 16194, (4, 2): 16600, (4, 4): 16680}
_LEADER_1 = {
    (0, 1): 45354, (0, 2): 46427, (0, 4): 46764, (1, 1): 33950, (1, 2): 32192, (1, 4): 32276,
}  # fmt: skip
_ALL_2 = {
    (2, 1): 9739, (2, 2): 9702, (3, 1): 9000, (3, 2): 9243, (4, 1): 9006, (4, 2): 8217,
    (4, 4): 9092,
}  # fmt: skip
_THREE = {
    (0, 1): 76696, (0, 2): 57503, (0, 4): 59367, (1, 1): 19489, (1, 2): 20404, (1, 4): 18365,
    (-1, 1): 18641, (-1, 2): 9739, (-1, 4): 9006,
}  # fmt: skip


def _all_cell(scenario: int, factor: int, least: int, partitions: int, tps: int | None) -> Cell:
    return Cell(
        scenario=scenario,
        name=f"all-rf{factor}-min{least}",
        acks=ACKS_ALL,
        replication_factor=factor,
        min_insync=least,
        partitions=partitions,
        article=Article(tps),
    )


def _acks_cell(scenario: int, acks: int, factor: int, partitions: int, tps: int) -> Cell:
    cell = _all_cell(scenario, factor, 1, partitions, tps)
    return cell._replace(name=f"{ACKS_NAMES[acks]}-rf{factor}-min1", acks=acks)


def _one() -> list[Cell]:
    cells = [_all_cell(1, *key, 12, tps) for key, tps in _ALL_1.items()]
    return cells + [_acks_cell(1, *key, 12, tps) for key, tps in _LEADER_1.items()]


def _two() -> list[Cell]:
    return [_all_cell(2, *key, 1, tps) for key, tps in _ALL_2.items()]


def _three() -> list[Cell]:
    return [_acks_cell(3, *key, 1, tps) for key, tps in _THREE.items()]


def _four() -> list[Cell]:
    return [
        _all_cell(4, 2, 2, count, None)._replace(name=f"p{count}") for count in (1, 2, 4, 8, 12)
    ]


def _five() -> list[Cell]:
    plain = _all_cell(5, 4, 2, 12, None)
    two = (BrokerFault(0.33, 1), BrokerFault(0.66, 1))
    three = (
        BrokerFault(0.2, 1),
        BrokerFault(0.4, 1),
        BrokerFault(0.6, 1),
        BrokerFault(0.0, 0, has_stall=True),
    )
    again = plain._replace(retries=RETRIES_MAX)
    return [
        plain._replace(name="kill2-retries0", faults=two, article=Article(12840)),
        again._replace(name="kill2-retries", faults=two, article=Article(13870)),
        again._replace(name="kill2-idempotent", faults=two, is_idempotent=True),
        again._replace(name="kill3-start", faults=three),
    ]


def _six() -> list[Cell]:
    plain = _all_cell(6, 4, 2, 12, None)._replace(has_reader=True)
    article = Article(None, (1.715, 1, 157, 3, 29), (1.646, 1, 288, 4, 72))
    return [
        plain._replace(name="max", article=article),
        *(
            plain._replace(name=f"rate{int(ratio * 100)}", rate_ratio=ratio)
            for ratio in (0.25, 0.5, 0.75)
        ),
    ]


def _seven() -> list[Cell]:
    cells = []
    for factor in (1, 4):
        plain = _all_cell(7, factor, min(factor, 2), 12, None)._replace(has_reader=True)
        cells += [
            plain._replace(name=f"plain-rf{factor}"),
            plain._replace(name=f"idem-rf{factor}", is_idempotent=True, retries=RETRIES_MAX),
        ]
        cells += [
            plain._replace(
                name=f"txn{records}-p{partitions}-rf{factor}",
                is_idempotent=True,
                retries=RETRIES_MAX,
                txn_records=records,
                txn_partitions=partitions,
            )
            for records in (1, 10, 100, 1000)
            for partitions in (1, 4, 12)
            if partitions <= records
        ]
    return cells


SCENARIOS: dict[int, tuple[str, list[Cell]]] = {
    1: ("acks, replicas and min.insync.replicas, 12 partitions", _one()),
    2: ("replicas and min.insync.replicas, acks=all, 1 partition", _two()),
    3: ("acks and replicas, 1 partition", _three()),
    4: ("partitions, 2 replicas, acks=all", _four()),
    5: ("brokers are killed, 4 replicas, acks=all", _five()),
    6: ("latency of sending, and until a consumer has it", _six()),
    7: ("cost of idempotence and transactions", _seven()),
}


def with_bare(cells: Sequence[Cell]) -> list[Cell]:
    """Add the bare loop, with the settings of the first cell that allows it."""
    plain = [each for each in cells if not (each.faults or each.txn_records or each.has_reader)]
    if not plain:
        return list(cells)
    bare = plain[0]._replace(name=BARE, is_bare=True, has_reader=False, article=Article())
    return [*cells, bare]


def with_java(cells: Sequence[Cell]) -> list[Cell]:
    """Add a run with Kafka's own producer for each cell that its tool can send."""
    return [
        *cells,
        *(
            each._replace(name=f"{each.name}-java", is_java=True, article=Article())
            for each in cells
            if each.is_ours and not (each.faults or each.txn_records or each.has_reader)
        ),
    ]


def chosen_cells(scenarios: Iterable[int], patterns: Sequence[str]) -> list[Cell]:
    """Return the cells of scenarios, by names or patterns of names.

    Raises:
        UsageError: an unknown scenario, or a pattern without a cell.
    """
    found: list[Cell] = []
    for number in scenarios:
        if number not in SCENARIOS:
            reported = "; ".join(f"{each} {what}" for each, (what, _) in SCENARIOS.items())
            raise UsageError(f"--scenario {number}: there is none", next_step=reported)
        found += SCENARIOS[number][1]
    if not patterns:
        return found
    for pattern in patterns:
        if not any(fnmatchcase(each.name, pattern) for each in found):
            names = " ".join(each.name for each in found)
            raise UsageError(f"--cell {pattern}: no such cell", next_step=f"cells: {names}")
    return [each for each in found if any(fnmatchcase(each.name, one) for one in patterns)]


def require_possible(cells: Sequence[Cell], brokers: int, *, is_ours: bool = True) -> None:
    """Refuse cells that need more brokers. Raises UsageError with all their names.

    `is_ours` means that eoctl starts the brokers, so it can start more.
    """
    beyond = [each for each in cells if each.replication_factor > brokers]
    dead = [
        each for each in cells if sum(fault.kills for fault in each.faults) >= brokers > 0
    ]  # no broker would be left to answer
    if not beyond and not dead:
        return
    wrong = list(dict.fromkeys((*beyond, *dead)))
    names = " ".join(f"{each.scenario}:{each.name}" for each in wrong)
    most = max(each.replication_factor for each in wrong)
    possible = " ".join(f"--cell {each.name}" for each in cells if each not in wrong)
    steps = [*([f"--brokers {most}"] if is_ours else []), *([possible] if possible else [])]
    count = f"{brokers} broker{'s are' if brokers != 1 else ' is'}"
    raise UsageError(f"{count} too few for {names}", next_step=", or ".join(steps))
