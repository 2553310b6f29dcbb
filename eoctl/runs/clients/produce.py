"""One run of `eoctl produce`: the same steps for a plan and for the real thing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from eoctl.clients.partitions.identity import NOWHERE, OwnIds
from eoctl.clients.partitions.interrupts import run_held
from eoctl.clients.partitions.open_partition import OpenPartitions, appending, clock_of
from eoctl.clients.partitions.target import resolve_target, target_paths
from eoctl.clients.producing.produce_session import SessionPartition
from eoctl.clients.producing.producer import AckFile, PartitionProducer, Sending
from eoctl.clients.producing.session_keeper import (
    ProduceSessionKeeper,
    first_identities,
    session_identities,
)
from eoctl.clients.producing.topic_producer import (
    CheckedInput,
    CoordinatorCalls,
    SentRecords,
    SessionCalls,
    StickyPartitions,
    TopicProducer,
    count_by_epoch,
    find_place,
)
from eoctl.clients.text.inputs import (
    InputFormat,
    InterruptibleInput,
    read_line_blocks,
    read_records,
)
from eoctl.clock import resolve_now
from eoctl.runs.clients.produce_checks import as_holder, check_call, session_arguments
from eoctl.runs.clients.produce_report import ProduceResult, link_counts, report_of
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.clients.coordinators.log_dir_coordinator import Transactional
    from eoctl.clients.partitions.interrupts import Interrupts
    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clients.producing.produce_session import ProduceSession
    from eoctl.clients.producing.topic_producer import ProduceOptions
    from recovery.changes.append_journal import AppendJournal


class ProduceInput(NamedTuple):
    """The input: an open file, its name for errors, and who is told how much was read."""

    file: BinaryIO
    name: str
    on_bytes: Callable[[int], None]


def produce(path: str, source: ProduceInput, options: ProduceOptions) -> ProduceResult:
    """Append the records of `source` to the partition at `path` (or to a topic), or plan to.

    Raises:
        RefusedError, UsageError, AccessError: nothing was touched, or only a recovery was done.
    """
    paths = target_paths(path, options.topic, options.target.metadata_dir, options.partitions_count)
    check_call(source.name, options, paths)
    targets = [resolve_target(each, options.target) for each in paths]
    if not options.write.change.apply:
        return _ProduceRun(targets, as_holder(targets, options), None, source).run()
    log_dirs = sorted({each.log_dir_path for each in targets})
    with appending(log_dirs, options.write.change, "produce") as journal:
        # A broker may have run since we looked.
        targets = [resolve_target(each.path, options.target) for each in targets]
        held = as_holder(targets, options, journal.fs)
        return _ProduceRun(targets, held, journal, source).run()._replace(journal=journal)


class _ProduceRun:
    def __init__(
        self,
        targets: Sequence[WriteTarget],
        options: ProduceOptions,
        journal: AppendJournal | None,
        source: ProduceInput,
    ) -> None:
        self.options = options
        self.source = source
        log_dirs = sorted({each.log_dir_path for each in targets})
        # An append happens now, whatever the directory's age.
        self.now = resolve_now(options.now, log_dirs)
        self.keeper: ProduceSessionKeeper | None = None
        if options.session is not None:
            self.keeper = ProduceSessionKeeper(
                journal,
                options.session,
                session_arguments(targets, options),
                options.producer_id,
                options.producer_epoch,
            )
        self.acks: AckFile | None = None
        if options.acks_to is not None and journal is not None:
            self.acks = AckFile(journal.fs, options.acks_to)
        self.partitions = OpenPartitions(
            log_dirs[0], options.write, options.target, self.now, journal
        )
        self.opened = [self.partitions.open_target(each) for each in targets]
        self.id_notes: list[str] = []
        self.own_ids = OwnIds(log_dirs, targets[0].next_broker_id, self.id_notes)
        self.transactional = self._transactional(log_dirs[0])
        self.producer_ids = self._first_ids()
        if self.session is not None:
            self.identities = session_identities(
                self.session, self.producer_ids, self.options.transactions
            )
        else:
            self.identities = first_identities(
                self.opened,
                self.producer_ids,
                self.options.transactions,
                producer_epoch=self.options.producer_epoch,
                base_sequence=self.options.base_sequence,
            )
        self.producers = [self._producer(number) for number in range(len(self.opened))]
        if self.keeper is not None and self.keeper.session is None:
            self._begin(self.keeper)
        self.topic = self._topic_producer()

    # -- who

    @property
    def session(self) -> ProduceSession | None:
        """What an earlier run has left, or this one has begun."""
        return None if self.keeper is None else self.keeper.session

    def _transactional(self, log_dir: str) -> Transactional | None:
        """Begin a session of the transactional id; its transactions have its version."""
        options = self.options
        if options.transactional is None or options.transactions is None:
            return None
        from eoctl.clients.coordinators.log_dir_coordinator import Transactional

        begun = Transactional(
            log_dir,
            options.target.metadata_dir,
            self.partitions,
            options.transactional,
            clock_of(self.now),
        )
        transactions = options.transactions._replace(version=begun.version)
        self.options = options._replace(
            transactions=transactions,
            producer_id=begun.producer.producer_id,
            producer_epoch=begun.producer.producer_epoch,
        )
        return begun

    def _first_ids(self) -> list[int]:
        if self.session is not None:
            return list(self.session.producer_ids)
        if self.options.producer_id is not None:
            return [self.options.producer_id]
        return [self._new_id()]

    def _new_id(self) -> int:
        if self.transactional is not None:  # by now that is another one
            return self.transactional.producer.producer_id
        writers = [each.writer for each in self.opened]
        known = {number for each in writers for number in each.producers.producers}
        if self.keeper is not None:
            return self.own_ids.random_id(known)
        end_offset = max(each.end_offset for each in writers)
        names = (Path(each.store.directory).name for each in writers)
        return self.own_ids.id_of_run(known, names, end_offset)

    def _add_id(self) -> None:
        """Take one more producer id; a session must know it before it is used."""
        self.producer_ids.append(self._new_id())
        if self.keeper is not None:
            self.keeper.add_producer_ids(self.producer_ids)

    def _producer(self, number: int) -> PartitionProducer:
        options, opened = self.options, self.opened[number]
        identities = self.identities[number]
        in_log, counts = NOWHERE, None
        if self.session is not None:
            partition, start = self._readable(number), self.session.partitions[number].start_offset
            in_log = find_place(partition, opened.tail, identities, start)
            if identities.is_per_transaction and partition is not None:
                end_offset = opened.tail.end_offset
                counts = count_by_epoch(partition, self.producer_ids, start, end_offset)
        faults = options.faults
        if faults is not None:  # every partition has a connection of its own
            faults = faults._replace(seed=faults.seed + number)
        return PartitionProducer(
            opened.writer,
            BatchBuilder(
                codec=opened.codec,
                batch_bytes=options.batch_bytes,
                batch_records=options.batch_records,
            ),
            identities,
            now_ms=clock_of(self.now),
            timestamp_ms=options.timestamp_ms,
            is_transactional=options.transactions is not None,
            in_log=in_log,
            counts=counts,
            sending=Sending(
                options.in_flight, faults, None if self.acks is None else self.acks.write
            ),
        )

    def _readable(self, number: int) -> Partition | None:
        """The partition as it is after its recovery."""
        target = self.opened[number].target
        if target.partition is None:
            return None
        return Partition(target.partition.directory, target.log_dir)

    def _begin(self, keeper: ProduceSessionKeeper) -> None:
        partitions = [
            SessionPartition(
                name=Path(each.target.path).name,
                base_sequence=producer.identities.first.base_sequence,
                start_offset=each.tail.end_offset,
                end_offset=each.tail.end_offset,
            )
            for each, producer in zip(self.opened, self.producers, strict=True)
        ]
        epoch = self.producers[0].identities.first.producer_epoch
        keeper.begin(self.producer_ids, epoch, partitions)

    # -- sending

    def _topic_producer(self) -> TopicProducer:
        session, checked = self.session, None
        if session is not None:
            sent = [
                SentRecords(partition, self.producer_ids, known.end_offset, opened.tail.end_offset)
                if (partition := self._readable(number)) is not None
                else None
                for number, (known, opened) in enumerate(
                    zip(session.partitions, self.opened, strict=True)
                )
            ]
            checked = CheckedInput(
                input_name=self.source.name,
                pos=session.input_pos,
                last_sha256=session.last_sha256,
                sent=sent,
            )
        sticky = None
        if len(self.opened) > 1:
            # From the id, so that a session comes to the same places.
            sticky = StickyPartitions(
                len(self.opened), self.producer_ids[0], self.options.batch_bytes
            )
        return TopicProducer(
            self.producers,
            sticky=sticky,
            transactions=self.options.transactions,
            early_ends=() if session is None else session.ends,
            checked=checked,
            session=None
            if self.keeper is None
            else SessionCalls(self.keeper.pass_over, self._save),
            coordinator=self._coordinator_calls(),
            add_producer_id=self._add_id,
        )

    def _coordinator_calls(self) -> CoordinatorCalls | None:
        transactional = self.transactional
        if transactional is None:
            return None
        from storage.producers.transaction_metadata import ProducerIdAndEpoch

        names = [each.target.name for each in self.opened]
        places = [(each.topic, each.partition) for each in names]

        def add(number: int) -> None:
            """As a client does it: with what it takes for its id and epoch."""
            producer = self.producers[number]
            who = producer.identities.at(producer.transaction, producer.count)
            sender = ProducerIdAndEpoch(who.producer_id, who.producer_epoch)
            transactional.add([places[number]], sender)

        return CoordinatorCalls(
            add,
            lambda is_commit: transactional.end(is_commit=is_commit),
            transactional.abort,
        )

    def _save(self) -> None:
        if self.keeper is not None:
            end_offsets = [each.writer.end_offset for each in self.opened]
            self.keeper.note_sent(self.topic.input_pos, self.topic.last_record, end_offsets)

    def run(self) -> ProduceResult:
        """Send everything, and close the partitions whatever happens.

        An interruption comes while the input is waited for, or at the end: a batch, a transaction
        and a close are done to their ends.
        """
        return run_held(self._run)

    def _run(self, interrupts: Interrupts) -> ProduceResult:
        error: BaseException | None = None
        try:
            self._send(interrupts)
        except (EoctlError, OSError, KeyboardInterrupt) as exc:
            error = exc
        if error is not None and self.keeper is None:
            error = first_error(error, self.topic.abort)
        not_closed = self.partitions.close()
        error = error or not_closed
        if error is None:
            error = first_error(error, self._save)
        if self.acks is not None:
            error = first_error(error, self.acks.close)
        is_applied = self.options.write.change.apply
        pairs = zip(self.opened, self.producers, strict=True)
        return ProduceResult(
            reports=tuple(report_of(*each, is_applied=is_applied) for each in pairs),
            recoveries=self.partitions.recoveries,
            changes=self.partitions.changes,
            link=None if self.options.faults is None else link_counts(self.producers),
            notes=tuple(self._notes()),
            error=error,
        )

    def _send(self, interrupts: Interrupts) -> None:
        options, source, keeper = self.options, self.source, self.keeper
        if options.topic is not None:
            for each in self.opened:  # so that the next run finds as many
                if each.target.partition is None:
                    each.store.begin()
        file: Any = InterruptibleInput(source.file, interrupts)
        if keeper is not None:
            end_offsets = [each.tail.end_offset for each in self.opened]
            file = keeper.checked_input(file, source.name, end_offsets)
        needs_keys = any(each.config.is_compacted for each in self.opened)
        is_plain = options.input_format is InputFormat.LINES and options.key_separator is None
        if is_plain and len(self.opened) == 1 and not needs_keys:
            blocks = read_line_blocks(file, source.name, on_bytes=source.on_bytes)
            self.topic.send_lines(blocks)
        else:
            records = read_records(
                file,
                source.name,
                options.input_format,
                key_separator=options.key_separator,
                bytes_as=options.bytes_as,
                needs_keys=needs_keys,
                partitions=[each.target.name.partition for each in self.opened],
                on_bytes=source.on_bytes,
            )
            self.topic.send_all(records)
        self.topic.finish(None if keeper is None else keeper.note_early_end)

    # -- telling

    def _notes(self) -> Iterator[str]:
        from eoctl.clients.partitions.open_partition import notes_of

        more = self.id_notes if self.transactional is None else self.transactional.notes
        is_applied = self.options.write.change.apply
        yield from notes_of(
            [*self.partitions], self.now, is_applied=is_applied, more=[*more, *self._open_end()]
        )

    def _open_end(self) -> Iterator[str]:
        path = self.options.session
        if self.topic.open_count and path is not None:
            left = f"a transaction of {self.topic.open_count} records has no end"
            yield f"{left}: another run with --producer-session {path} goes on with it"


def first_error(error: BaseException | None, call: Callable[[], None]) -> BaseException | None:
    """Make a call that must not keep later ones from being made; the first error tells most."""
    try:
        call()
    except EoctlError as exc:
        return error or exc
    return error
