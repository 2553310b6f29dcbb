"""Find what is in a log twice: proved by sequences, or suspected by content.

Partitions are searched one after the other, or the partitions of a topic together. Each is read
once; once more, headers only, from where the first transaction is met, if there is one. Batches
and records become rows of sorters (see `spill`), so memory does not depend on the log.

  proved      see `proved_duplicates`; not in topics where sequence rules do not hold (PROD-12)
  suspected   see `suspected_duplicates`; not in internal topics unless they are asked for

Control batches are no data. All that is in the files counts, also below the log start offset and
above the high watermark. With `is_committed_only` only what a read_committed consumer may see is
looked at: batches that are aborted, or have no marker yet, are as if they were not there.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recovery.duplicates.batch_outcomes import OutcomeReader, outcome_sorter
from recovery.duplicates.groups import by_group
from recovery.duplicates.payloads import PairReporter
from recovery.duplicates.proved import batch_sorter, proved_pairs, sequenced_rows
from recovery.duplicates.record_digests import Digester
from recovery.duplicates.rows import COMMITTED, DuplicateKind
from recovery.duplicates.scan import Trouble, decode_part, read_parts
from recovery.duplicates.suspected import record_rows, record_sorter, suspected_pairs
from storage.dirs.offset_ledger import joined
from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.file_names import REMOTE_METADATA_TOPIC, DirState
from storage.kernels.protocol import HeaderTable
from storage.places.listing import UNSEQUENCED_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from recovery.duplicates.record_digests import RecordId
    from recovery.duplicates.rows import Duplicate
    from recovery.duplicates.scan import Part
    from recovery.duplicates.spill import Sorter, SpillSpace
    from storage.dirs.discovery import Selected

# What their writers repeat on purpose: commits, states, metadata.
INTERNAL_TOPICS = UNSEQUENCED_TOPICS | {REMOTE_METADATA_TOPIC}


class DuplicateOptions(NamedTuple):
    """What to look for.

    Attributes:
        kinds: proved, suspected or both.
        window_ms: how long ago the first copy of a suspected one may be, by record timestamps.
        record_id: compare this instead of key, value and headers.
        min_bytes: see `Digester`.
        is_across_partitions: suspected ones may have their first copy in another partition.
        is_committed_only: see above.
        is_by_group: pairs of one group follow each other, instead of being in order of offsets.
    """

    kinds: frozenset[DuplicateKind] = frozenset(DuplicateKind)
    window_ms: int = 600_000
    record_id: RecordId | None = None
    min_bytes: int = 1
    is_across_partitions: bool = False
    is_committed_only: bool = False
    is_by_group: bool = False


class DuplicateSearch:
    """A search over partition directories; iterate over `duplicates`, then see what was left out.

    Attributes:
        counts: duplicates found so far, by kind.
        notes: sentences about what was left out, and why.
        is_skipped: a part could not be read.
        is_short: a part was acknowledged and is not there.
        opened_count: segments that could be opened.
        spilled_bytes: what was written to temporary files.
    """

    def __init__(
        self,
        selected: Sequence[Selected],
        options: DuplicateOptions,
        space: SpillSpace,
        *,
        asked_for: Callable[[Selected], bool] = lambda _: True,
        on_bytes: Callable[[int], object] = int,
    ) -> None:
        """Prepare.

        Args:
            selected: the directories.
            options: what to look for.
            space: memory and disk that may be used.
            asked_for: whether a directory was named itself, internal topic or not.
            on_bytes: is told how many bytes more were read.
        """
        self._selected = selected
        self._options = options
        self._space = space
        self._asked_for = asked_for
        self._on_bytes = on_bytes
        self._left: int | None = None
        self._is_by_id = options.record_id is not None
        self._digester = Digester(options.record_id, min_bytes=options.min_bytes)
        self.counts = dict.fromkeys(DuplicateKind, 0)
        self.notes: list[str] = []
        self.is_skipped = self.is_short = False
        self.opened_count = 0
        self.spilled_bytes = 0

    def duplicates(self, limit: int | None = None) -> Iterator[Duplicate]:
        """Give the duplicates, partition by partition: proved ones, then suspected ones.

        With a limit no more are given, while all are counted.

        Raises:
            AccessError: temporary files cannot be written.
        """
        self._left = limit
        for unit in self._units():
            yield from self._search(unit)
        internal = [each for each in self._selected if not self._is_compared(each)]
        if internal and DuplicateKind.SUSPECTED in self._options.kinds:
            self.notes.append(
                f"{len(internal)} partitions of internal topics were not searched for suspected"
                " duplicates; name their directories to have it done"
            )

    def _is_compared(self, selected: Selected) -> bool:
        return selected.partition.name.topic not in INTERNAL_TOPICS or self._asked_for(selected)

    def _units(self) -> Iterator[list[Selected]]:
        """Give what is searched together. Another replica of a partition is searched by itself."""
        if not self._options.is_across_partitions:
            yield from ([each] for each in self._selected)
            return
        topics: dict[str, dict[int, Selected]] = {}
        alone = []
        for each in self._selected:
            name = each.partition.name
            together = topics.setdefault(name.topic, {})
            if name.state is not DirState.LIVE or name.partition < 0:
                alone.append(each)
            elif name.partition in together:
                alone.append(each)
                self.notes.append(
                    f"{each.partition.path}: not compared with other partitions: "
                    f"{together[name.partition].partition.path} is the same one"
                )
            else:
                together[name.partition] = each
        for together in topics.values():
            if together:
                yield [together[number] for number in sorted(together)]
        yield from ([each] for each in alone)

    def _search(self, unit: list[Selected]) -> Iterator[Duplicate]:
        partitions = dict(self._listed(unit))
        kinds = self._options.kinds
        with ExitStack() as stack:
            reporter = stack.enter_context(PairReporter(partitions))
            records = None
            if DuplicateKind.SUSPECTED in kinds and self._is_compared(unit[0]):
                records = record_sorter(self._space, by_id=self._is_by_id)
                stack.enter_context(records)
            for number, partition in partitions.items():
                proved = self._read(partition, number, records)
                if proved is not None:
                    with proved:
                        yield from map(reporter.proved, self._taken(proved, DuplicateKind.PROVED))
            if records is None:
                return
            window_ms = self._options.window_ms
            suspected = suspected_pairs(records, self._space, window_ms, by_id=self._is_by_id)
            self.spilled_bytes += records.spilled_bytes
            records.close()
            with suspected:
                for pair in self._taken(suspected, DuplicateKind.SUSPECTED):
                    yield reporter.suspected(pair, by_id=self._is_by_id)

    def _listed(self, unit: list[Selected]) -> Iterator[tuple[int, Partition]]:
        for number, each in enumerate(unit):
            try:
                partition = Partition.of(each)
            except AccessError as exc:
                self._leave_out([str(exc)])
            else:
                self._leave_out(map(str, partition.problems))
                if partition.remote_range is not None:
                    self.notes.append(f"{partition.path}: {partition.remote_range}: not searched")
                yield number, partition

    def _taken(self, pairs: Sorter, kind: DuplicateKind) -> Iterator[Any]:
        """Count pairs, and give as many as may still be reported."""
        self.counts[kind] += pairs.rows_count
        self.spilled_bytes += pairs.spilled_bytes
        if self._left == 0:
            return
        for row in self._ordered(pairs, kind):
            yield row
            if self._left is not None:
                self._left -= 1
                if not self._left:
                    return

    def _ordered(self, pairs: Sorter, kind: DuplicateKind) -> Iterator[Any]:
        if not self._options.is_by_group:
            for rows in pairs.chunks():
                yield from rows
            return
        with by_group(pairs, kind, self._space) as grouped:
            for rows in grouped.chunks():
                yield from rows["pair"]
            self.spilled_bytes += grouped.spilled_bytes

    def _leave_out(self, notes: Iterable[str]) -> None:
        for each in notes:
            self.notes.append(each)
            self.is_skipped = True

    def _read(self, partition: Partition, number: int, records: Sorter | None) -> Sorter | None:
        """Read a partition; returns its proved pairs, if there are any."""
        trouble = Trouble()
        is_proved = DuplicateKind.PROVED in self._options.kinds
        is_proved = is_proved and partition.topic not in UNSEQUENCED_TOPICS
        with ExitStack() as stack:
            batches = stack.enter_context(batch_sorter(self._space)) if is_proved else None
            outcomes = _Outcomes(partition, self._space, stack)
            for part in read_parts(partition, trouble, self._on_bytes):
                outcome = outcomes.of(part)
                wanted = part.is_data.copy()
                if self._options.is_committed_only:
                    wanted &= outcome == COMMITTED
                if batches is not None:
                    table = HeaderTable._make(column[wanted] for column in part.table)
                    batches.add(sequenced_rows(table, outcome[wanted]))
                if records is not None:
                    for decoded in decode_part(part, wanted, trouble):
                        records.add(record_rows(decoded, outcome, self._digester, number))
            self.opened_count += trouble.opened_count
            self._leave_out(trouble.told(partition.path))
            span = joined(trouble.spans, partition.acknowledged.cleaned_offset)
            not_given = partition.not_given(span, trouble.lost)
            self.notes += (f"{partition.path}: {each}" for each in not_given)
            self.is_short |= bool(not_given)
            if batches is None:
                return None
            self.spilled_bytes += batches.spilled_bytes
            return proved_pairs(batches, self._space, number)


class _Outcomes:
    """Outcomes of a partition's batches; its transactions are read when the first one is met."""

    def __init__(self, partition: Partition, space: SpillSpace, stack: ExitStack) -> None:
        self._partition = partition
        self._space = space
        self._stack = stack
        self._reader: OutcomeReader | None = None

    def of(self, part: Part) -> NDArray[np.int8]:
        """Return a code per batch of the next part."""
        codes = np.full(part.table.row_count, COMMITTED, np.int8)
        rows = np.flatnonzero(part.is_transactional & part.is_data)
        if rows.size:
            if self._reader is None:
                sorter = self._stack.enter_context(outcome_sorter(self._partition, self._space))
                self._reader = OutcomeReader(sorter)
            codes[rows] = self._reader.outcomes(part.table.base_offset[rows])
        return codes
