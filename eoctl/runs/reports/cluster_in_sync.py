"""From `cluster-state --acknowledged` to rows: who was in the ISR when an offset counted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from eoctl.progress import Progress
from eoctl.runs.reports.cluster_metadata import GivenMetadata, newest_copy, reading_notes
from eoctl.runs.told import Said, moment
from recovery.cluster.history import read_history
from recovery.cluster.in_sync import AckStanding, in_sync_at, record_origins
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EXIT_SKIPPED, AccessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.cluster.in_sync import InSync, RecordOrigin


class InSyncRow(NamedTuple):
    """An ISR that may have acknowledged an offset.

    Attributes:
        standing: known, likely, possible, later; unknown: its leader epoch is not in the metadata.
        start_timestamp_ms, end_timestamp_ms: the time in which it was the ISR.
        acknowledged: yes: a high watermark is above it; else unknown.
    """

    topic: str
    partition: int
    offset: int
    standing: str
    leader: int | None
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader_epoch: int
    start_timestamp_ms: int | None
    end_timestamp_ms: int | None
    start_offset: int | None
    end_offset: int | None
    min_insync_replicas: int | None
    acknowledged: str
    record_timestamp_ms: int | None
    is_append_time: bool
    copies: tuple[str, ...]


class InSyncRun:
    """Looks an offset up; rows are complete once it is made."""

    def __init__(
        self, paths: Sequence[str], acknowledged: str, *, metadata_dir: str | None
    ) -> None:
        match = re.fullmatch(r"(.+)-([0-9]{1,10}):([0-9]{1,18})", acknowledged)
        if match is None:
            raise UsageError(f"--acknowledged {acknowledged}: not TOPIC-N:OFFSET, as txn-0:311")
        self.topic, self.partition, self.offset = match[1], int(match[2]), int(match[3])
        self._given = given = GivenMetadata(paths, metadata_dir)
        self.notes = list(given.notes)
        self._is_short = given.is_short
        if not given.copies:
            raise UsageError(f"{given.path}: nothing has happened yet: there is no log")
        self._copy, passed_over = newest_copy(given)
        self.notes += passed_over
        self._is_short = self._is_short or bool(passed_over)
        origins = self._origins()
        later = [each.leader_epoch for each in origins[1:]]
        self.rows = [
            row
            for each, epoch in zip(origins, [*later, None], strict=True)
            for row in self._rows(each, epoch)
        ]

    @property
    def status(self) -> int:
        """5: not all of it could be read."""
        return EXIT_SKIPPED if self._is_short else EXIT_OK

    def _origins(self) -> list[RecordOrigin]:
        name = f"{self.topic}-{self.partition}"
        copies = []
        for each in self._given.selected:
            if str(each.partition.topic_partition) != name:
                continue
            try:
                copies.append(Partition.of(each))
            except AccessError as exc:
                self.notes.append(str(exc))
                self._is_short = True
        if not copies:
            raise UsageError(
                f"no directory of {name} there: in which leader epoch an offset was appended is in"
                " its log",
                next_step="eoctl cluster-state LOG-DIR..., of a broker that has it",
            )
        origins = record_origins(copies, self.offset)
        problems = [str(problem) for each in copies for problem in each.problems]
        self.notes += problems
        self._is_short = self._is_short or bool(problems)
        if not origins:
            raise UsageError(
                f"{name} has no offset {self.offset} in {', '.join(each.path for each in copies)}"
            )
        return origins

    def _rows(self, origin: RecordOrigin, before_epoch: int | None) -> Iterator[InSyncRow]:
        copy = self._copy
        history = read_history(copy.partition)
        with Progress("reading"):
            found = in_sync_at(
                history, origin, self.topic, self.partition, before_epoch=before_epoch
            )
        self.notes += [each for each in reading_notes(copy, history) if each not in self.notes]
        self._is_short = self._is_short or not history.is_complete
        if not found:
            self.notes.append(
                f"leader epoch {origin.leader_epoch} is not in the metadata, which begin at offset"
                f" {history.start_offset}: who was in the ISR is not known"
            )
            yield self._row(origin, None)
        for each in found:
            yield self._row(origin, each)

    def _row(self, origin: RecordOrigin, found: InSync | None) -> InSyncRow:
        state = None if found is None else found.state
        return InSyncRow(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            standing="unknown" if found is None else found.standing.value,
            leader=None if state is None else state.leader,
            isr=() if state is None else state.isr,
            elr=() if state is None else state.elr,
            leader_epoch=origin.leader_epoch if state is None else state.leader_epoch,
            start_timestamp_ms=None if found is None else found.start_timestamp_ms,
            end_timestamp_ms=None if found is None else found.end_timestamp_ms,
            start_offset=None if found is None else found.start_offset,
            end_offset=None if found is None else found.end_offset,
            min_insync_replicas=None if found is None else found.min_insync_replicas,
            acknowledged="yes" if origin.acknowledged_by else "unknown",
            record_timestamp_ms=origin.timestamp_ms,
            is_append_time=origin.is_append_time,
            copies=origin.paths,
        )

    def answer(self) -> Iterator[Said]:
        """Say what is known, and what is only bounded."""
        for epoch in dict.fromkeys(each.copies for each in self.rows):
            rows = [each for each in self.rows if each.copies == epoch]
            first = rows[0]
            what = f"{self.topic}-{self.partition} offset {self.offset}"
            yield Said("Record", f"{what}, leader epoch {first.leader_epoch}, in {epoch[0]}")
            if first.record_timestamp_ms is not None:
                whose = "leader" if first.is_append_time else "producer"
                yield Said("", f"{moment(first.record_timestamp_ms)} by the clock of its {whose}")
            acked = "a high watermark is above it" if first.acknowledged == "yes" else "not known"
            yield Said("Acked", acked)
            for each in rows:
                if each.standing in (AckStanding.KNOWN, AckStanding.LIKELY):
                    members = ",".join(map(str, each.isr))
                    yield Said("ISR", f"{members}, led by {each.leader}: {each.standing}")
            if len(rows) > 1:
                yield Said("Bounded", "any of these may have been it: when is written nowhere")
