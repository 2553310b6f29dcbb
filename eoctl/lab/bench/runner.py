"""Sequence of runs: all cells in turn, with another first cell in each repetition."""

from __future__ import annotations

import math
import os
import secrets
import time
from contextlib import ExitStack
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.lab.bench.audit import LEADER, Reader, consumed_copies, count, judge, read_copies
from eoctl.lab.bench.brokers import STALL_S
from eoctl.lab.bench.client import await_quiet
from eoctl.lab.bench.load import (
    ACKNOWLEDGED,
    Load,
    interrupts_kept,
    measured,
    producer_settings,
    records_per_s,
    send_by_java,
)
from eoctl.lab.bench.scenarios import ACKS_ALL, MAX_TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from eoctl.lab.bench.audit import Landed
    from eoctl.lab.bench.brokers import Kafka
    from eoctl.lab.bench.client import Cluster, PartitionSeen
    from eoctl.lab.bench.load import LoadOptions, Sent
    from eoctl.lab.bench.scenarios import Cell


WARMUP = -1  # the repetition before the counted runs; runs that warm the brokers have lower numbers
WARMING_NAME = "warm-up"
WARM_RUN_S = 5.0
WARM_MOST_S = 300.0
STEADY_RUNS = 5
STEADY_GROWTH = 1.1


class ScenarioOptions(NamedTuple):
    """Options for running cells.

    Attributes:
        repetitions: of each cell.
        has_warmup: brokers are warmed first, because their first operations are slow. Then each
            cell without kills and rate runs once. These runs count in no figure.
        warmup_ratio: share of a run's records that count in no figure.
        load: settings of all loads.
        kafka: Kafka's programs, for the cells with Kafka's own producer.
    """

    repetitions: int
    has_warmup: bool
    warmup_ratio: float
    load: LoadOptions
    kafka: Kafka | None = None


class CellRun(NamedTuple):
    """One run of a cell.

    Attributes:
        repetition: from 0 on. WARMUP or less counts in no figure, except for landed records.
        sent: results of its records.
        rate: intended records per second, 0 for as fast as answers come.
        received_ns: time when a consumer got each record, 0 for never. None without a consumer.
        landed: records in the logs.
        audit_s: duration of the audit.
        moved_count: partitions with another leader at the end than at the start.
        load_average: of the machine, for the last minute before the start.
        topic: kept if records are missing, or duplicated without a reason.
    """

    cell: Cell
    repetition: int
    topic: str
    sent: Sent
    records_per_s: float
    rate: float
    received_ns: NDArray[np.int64] | None
    landed: Landed
    audit_s: float
    moved_count: int
    load_average: float

    @property
    def is_counted(self) -> bool:
        """True if its rate and its latencies count."""
        return self.repetition > WARMUP

    @property
    def is_warming(self) -> bool:
        """True if the run only warms the brokers."""
        return self.cell.name == WARMING_NAME


def warming_cell(cells: Sequence[Cell]) -> Cell:
    """Return the cell that warms brokers: the highest demand of a cell, without slow parts."""
    most = max(cells, key=lambda each: (each.replication_factor, each.acks == ACKS_ALL))
    return most._replace(
        name=WARMING_NAME, faults=(), rate_ratio=0.0, txn_records=0, txn_partitions=0,
        is_bare=False, is_java=False,
    )  # fmt: skip


def is_steady(rates: Sequence[float]) -> bool:
    """Return whether the last runs are not faster than the runs before, by their medians.

    JVMs compile frequent code, which takes a hundred thousand requests and more. Until then each
    run is faster than the previous run, about ten times in all.
    """
    before, last = rates[-2 * STEADY_RUNS : -STEADY_RUNS], rates[-STEADY_RUNS:]
    return len(before) == STEADY_RUNS and median(last) <= STEADY_GROWTH * median(before)


def order_of(cells: Sequence[Cell], repetition: int, repetitions: int) -> list[Cell]:
    """Rotate the cells by repetition, so that no cell is always the first or the last."""
    start = repetition * len(cells) // max(repetitions, 1)
    return [*cells[start:], *cells[:start]]


def left_s(taken_s: Mapping[Cell, Sequence[float]], waiting: Iterable[Cell]) -> float | None:
    """Predict the duration of cells by earlier runs of them or of others, None without a run."""
    if not taken_s:
        return None
    usual_s = {cell: mean(each) for cell, each in taken_s.items()}
    other_s = mean(usual_s.values())
    return sum(usual_s.get(each, other_s) for each in waiting)


def _left(taken_s: Mapping[Cell, Sequence[float]], waiting: Sequence[tuple[int, Cell]]) -> str:
    foretold_s = left_s(taken_s, [cell for _, cell in waiting])
    if foretold_s is None:
        return ""
    return f", about {math.ceil(foretold_s / 60)} min left"


class BrokerFaults:
    """Injector of a cell's faults into the brokers."""

    def __init__(self, cluster: Cluster, cell: Cell, records: int, seconds: float) -> None:
        self._cluster = cluster
        self._waiting = list(cell.faults)
        self._records, self._seconds = records, seconds
        self._begun_s = time.monotonic()
        self._alive = list(cluster.broker_ids)
        self.dead: list[int] = []

    @property
    def alive(self) -> list[int]:
        """Brokers that were not killed, or that were started again."""
        return self._alive

    def turn(self, sequence: int, silence_s: float) -> None:
        """Inject due faults, given the number of records sent and the time without an answer."""
        if not self._waiting:
            return
        fault = self._waiting[0]
        done = (
            (time.monotonic() - self._begun_s) / self._seconds
            if self._seconds
            else sequence / self._records
        )
        if silence_s < STALL_S if fault.has_stall else done < fault.at_ratio:
            return
        self._waiting.pop(0)
        if not fault.kills:
            self.start_all()
        for _ in range(fault.kills):
            broker = self._alive.pop()
            self.dead.append(broker)
            self._cluster.kill(broker)

    def start_all(self) -> None:
        """Start all dead brokers."""
        for each in self.dead:
            self._cluster.start(each)
        self._alive += self.dead
        self.dead = []


class BenchRunner:
    """Runner of the cells.

    Args:
        cluster: the brokers.
        cells: in their order.
        options: how cells are run.
        report: gets a message at each start.
    """

    def __init__(
        self,
        cluster: Cluster,
        cells: Sequence[Cell],
        options: ScenarioOptions,
        report: Callable[[str], None],
    ) -> None:
        self._cluster, self._options, self._report = cluster, options, report
        self._cells = cells
        self._name = secrets.token_hex(3)
        self._rates: dict[int, list[float]] = {}  # of the first cell of a scenario, per run
        self._java_rates: dict[Cell, float] = {}  # rate of the last run
        repetitions = options.repetitions
        self._scenario = [
            *((WARMUP, each) for each in cells if options.has_warmup and each.can_warm),
            *(
                (each, cell)
                for has_rate in (False, True)  # a ratio needs the rates of all runs of another cell
                for each in range(repetitions)
                for cell in order_of(cells, each, repetitions)
                if bool(cell.rate_ratio) is has_rate
            ),
        ]

    @property
    def runs_count(self) -> int:
        """Number of the results of `runs`."""
        return len(self._scenario)

    def warm(self) -> Iterator[CellRun]:
        """Run the warming cell until it does not get faster, or for WARM_MOST_S.

        Raises:
            RefusedError: a broker has ended, or does not settle.
        """
        if not self._options.has_warmup:
            return
        cell = warming_cell(self._cells)
        load = self._options.load._replace(seconds=WARM_RUN_S)
        end_s = time.monotonic() + WARM_MOST_S
        rates: list[float] = []
        while not is_steady(rates) and time.monotonic() < end_s:
            reached = f", {rates[-1]:,.0f} records/s in the last" if rates else ""
            self._report(f"warming the brokers, run {len(rates) + 1}{reached}")
            run = self._run(cell, WARMUP - len(rates), load)
            rates.append(run.records_per_s)
            yield run

    def runs(self) -> Iterator[CellRun]:
        """Run all cells, and yield each run at its end.

        Raises:
            RefusedError: a broker has ended, or does not settle.
        """
        taken_s: dict[Cell, list[float]] = {}
        for place, (repetition, cell) in enumerate(self._scenario):
            begun_s = time.monotonic()
            which = (
                "warm-up"
                if repetition == WARMUP
                else f"repetition {repetition + 1} of {self._options.repetitions}"
            )
            self._report(
                f"run {place + 1} of {len(self._scenario)}, {which}: {cell.scenario}:{cell.name}"
                f"{_left(taken_s, self._scenario[place:])}"
            )
            run = self._run(cell, repetition, self._options.load)
            taken_s.setdefault(cell, []).append(time.monotonic() - begun_s)
            yield run

    def _run(self, cell: Cell, repetition: int, load: LoadOptions) -> CellRun:
        topic = f"eoctl-bench-{self._name}-s{cell.scenario}-{cell.name}-{repetition + 1}"
        run_key = secrets.randbits(63)
        load_average = os.getloadavg()[0]
        before = self._cluster.create_topic(topic, cell)
        faults = BrokerFaults(self._cluster, cell, load.records, load.seconds)
        rate = self._rate(cell)
        with ExitStack() as stack:
            reader = None
            if cell.has_reader:
                reader = stack.enter_context(
                    Reader(
                        self._cluster.bootstrap, topic, cell.partitions, run_key,
                        is_committed=cell.txn_records > 0,
                    )
                )  # fmt: skip
            with interrupts_kept():
                sent = self._send(cell, topic, run_key, faults, rate, load)
            received_ns = None
            if reader is not None:
                wanted = np.flatnonzero(sent.status == ACKNOWLEDGED)
                received_ns = reader.received_ns(wanted, sent.records_count)
        # Kafka's tool reports one rate for all records.
        reached = records_per_s(sent, 0.0 if cell.is_java else self._options.warmup_ratio)
        if cell.is_java:
            self._java_rates[cell] = reached
        is_plain = cell.is_ours and not (cell.rate_ratio or cell.faults or cell.txn_records)
        if is_plain and repetition > WARMUP:
            self._rates.setdefault(cell.scenario, []).append(reached)
        begun_s = time.monotonic()
        seen, landed = self._audit(cell, topic, run_key, sent, faults)
        audit_s = time.monotonic() - begun_s
        is_odd = landed.missing_count and cell.acks != 0
        if not is_odd and not (landed.twice_count and not cell.may_double):
            self._cluster.delete_topic(topic)
        if faults.dead:
            faults.start_all()
            self._cluster.await_brokers(self._cluster.broker_ids)
        return CellRun(
            cell=cell,
            repetition=repetition,
            topic=topic,
            sent=sent,
            records_per_s=reached,
            rate=rate,
            received_ns=received_ns,
            landed=landed,
            audit_s=audit_s,
            moved_count=sum(seen[each].leader != part.leader for each, part in before.items()),
            load_average=load_average,
        )

    def _rate(self, cell: Cell) -> float:
        return cell.rate_ratio and cell.rate_ratio * median(self._rates[cell.scenario])

    def _send(
        self, cell: Cell, topic: str, run_key: int, faults: BrokerFaults, rate: float,
        load: LoadOptions,
    ) -> Sent:  # fmt: skip
        if cell.is_java:
            assert self._options.kafka is not None
            bootstrap = self._cluster.bootstrap
            if load.seconds and cell in self._java_rates:  # the tool has no time limit
                load = load._replace(records=math.ceil(load.seconds * self._java_rates[cell]))
            return send_by_java(self._options.kafka, bootstrap, cell, topic, load)
        settings = producer_settings(
            self._cluster.bootstrap, cell, f"{topic}-producer" if cell.txn_records else ""
        )
        on_turn = faults.turn if cell.faults else None
        sender = Load(settings, topic, cell.partitions, run_key, load, on_turn)
        if cell.is_bare:
            return sender.send_bare()
        if cell.txn_records:
            return sender.send_transactions(cell.txn_records, cell.txn_partitions, MAX_TRANSACTIONS)
        return sender.send(rate)

    def _audit(
        self, cell: Cell, topic: str, run_key: int, sent: Sent, faults: BrokerFaults
    ) -> tuple[dict[int, PartitionSeen], Landed]:
        if cell.acks != ACKS_ALL:  # acknowledged records may not be readable yet
            is_acknowledged = sent.status == ACKNOWLEDGED
            self._cluster.await_records(topic, cell.partitions, int(is_acknowledged.sum()))
        seen = self._cluster.settled(topic, cell.partitions, faults.alive)
        judged = count if cell.is_java else judge
        log_dirs = self._cluster.log_dirs
        if not log_dirs:  # on other machines: audit by a consumer
            copies = consumed_copies(
                self._cluster.bootstrap, topic, cell.partitions, run_key, sent.records_count
            )
            return seen, judged(sent, copies, dict.fromkeys(seen, (LEADER,)))
        is_quiet = await_quiet(lambda: _sizes(log_dirs, topic, seen), is_alike=True)
        in_sync = {number: part.in_sync for number, part in seen.items()}
        copies = read_copies(run_key, sent.records_count, log_dirs, topic, in_sync)
        landed = judged(sent, copies, in_sync)
        if not is_quiet:
            restless = f"{topic}: its copies did not come to one size, and were read as they were"
            landed = landed._replace(notes=(restless, *landed.notes))
        return seen, landed


def _sizes(
    log_dirs: dict[int, Path], topic: str, seen: dict[int, PartitionSeen]
) -> dict[int, list[int]]:
    return {
        number: [
            sum(
                each.stat().st_size
                for each in (log_dirs[broker] / f"{topic}-{number}").glob("*.log")
            )
            for broker in part.in_sync
        ]
        for number, part in seen.items()
    }


def end_to_end_ns(run: CellRun, warmup_ratio: float) -> NDArray[np.int64]:
    """Return the time from the intended send until a consumer got each received record."""
    if run.received_ns is None:
        return np.empty(0, np.int64)
    part = measured(run.sent, warmup_ratio)
    received = run.received_ns[part]
    found: NDArray[np.int64] = (received - run.sent.intended_ns[part])[received > 0]
    return found
