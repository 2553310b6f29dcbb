"""Checkpointed offsets and leader epochs compared with the log: OFS-1 to OFS-6, EPC-1 to EPC-4."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from recovery.checks.context.broker_version import REFUSES
from recovery.checks.log_dirs.log_dirs import LOSES_LOG_DIR
from recovery.rules.findings import Severity
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.offset_ledger import without
from storage.errors import FormatError
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LEADER_EPOCHS_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    DirState,
)
from storage.formats.checkpoint import leader_epoch_problems, parse_leader_epochs
from storage.formats.java_text import NotANumberError
from storage.formats.record_batch import MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.checks.context.collector import Circumstances, Collector
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.partition import Partition
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.kernels.protocol import HeaderTable


def check_offsets(partition: Partition, circumstances: Circumstances, collector: Collector) -> None:
    """Compare the log dir's checkpoints for a partition with its log (OFF-1)."""
    log_dir, directory = partition.log_dir, partition.directory
    if log_dir is None or circumstances.is_metadata:
        return
    end_offset, start_offset = circumstances.end_offset, circumstances.log_start_offset
    is_clean, is_end_read = circumstances.is_clean, circumstances.is_end_read

    def add(check_id: str, name: str, message: str, expected: str, found: int, **more: str) -> None:
        severity = Severity(more["severity"]) if "severity" in more else None
        collector.add(
            check_id,
            str(Path(log_dir.path, name)),
            message,
            severity=severity,
            expected=expected,
            found=str(found),
            base_offset=found,
        )

    checkpointed = log_dir.log_start_offset(directory)
    if checkpointed is not None and is_end_read and checkpointed > end_offset:
        hidden = partition.acknowledged.hidden(end_offset)
        reported = "" if hidden is None else f"; {hidden.offsets} are on disk"
        add("OFS-1", LOG_START_NAME, "the log start lies beyond the log: a broker deletes all of"
            f" it at its start{reported}", f"<= {end_offset}", checkpointed)  # fmt: skip
    point = log_dir.recovery_point(directory)
    if point is not None and is_end_read and point > end_offset:
        add("OFS-2", RECOVERY_POINT_NAME, "the recovery point lies beyond the log: what had been"
            " flushed is missing", f"<= {end_offset}", point)  # fmt: skip
    if point is not None and is_end_read and is_clean and point != end_offset:
        add("OFS-6", RECOVERY_POINT_NAME, "the log has changed since the clean stop",
            str(end_offset), point)  # fmt: skip
    high_watermark = log_dir.high_watermark(directory)
    if high_watermark is not None and high_watermark < start_offset:
        add("OFS-4", HIGH_WATERMARK_NAME, "the high watermark lies below the log start",
            f">= {start_offset}", high_watermark)  # fmt: skip
    cleaned = (log_dir.cleaner_offsets or {}).get(directory.topic_partition)
    is_beyond = cleaned is not None and is_end_read and cleaned > end_offset
    if cleaned is not None and (cleaned < start_offset or is_beyond):
        add("OFS-5", CLEANER_NAME, "the cleaner's offset is outside of the log",
            f"{start_offset} to {end_offset}", cleaned)  # fmt: skip


# The checkpoint with a claim, by its rule. Other claims are in the partition's own directory.
_CHECKPOINTS = {"OFS-2": RECOVERY_POINT_NAME, "OFS-3": HIGH_WATERMARK_NAME}


def check_missing(
    partition: Partition,
    end_offset: int | None,
    gaps: Iterable[Missing],
    collector: Collector,
) -> None:
    """Add findings for acknowledged offsets that are not on disk, and for the files left of them.

    Args:
        partition: as listed.
        end_offset: the log end offset on disk. None: the log could not be read to its end.
        gaps: unexplained gaps between batches (SEG-4).
        collector: takes the findings.
    """
    if partition.directory.name.state is DirState.DELETE:
        return
    claimed = partition.acknowledged
    is_known = end_offset is not None or not partition.segments
    missing = [*(claimed.missing(end_offset) if is_known else claimed.holes())]
    for each in (*missing, *without(gaps, missing)):
        collector.add(
            each.check_id,
            _path_of(each, partition),
            f"{each.offsets} are missing: {each.why}",
            severity=Severity.ERROR,
            base_offset=each.base_offset,
            last_offset=each.last_offset,
            expected="all that was acknowledged",
            found="not there",
        )
    for entry in partition.files.orphans:
        collector.add("SEG-9", entry.path, "an index without its .log", broker_action="deletes it")
    if not partition.segments:
        for entry in partition.files.snapshots:
            collector.add("SNP-2", entry.path, "a snapshot without any .log")


def _path_of(missing: Missing, partition: Partition) -> str:
    """Return the file that shows the loss: a checkpoint, the empty `.log`, or the directory."""
    name = _CHECKPOINTS.get(missing.check_id)
    if name is not None:
        return str(Path("" if partition.log_dir is None else partition.log_dir.path, name))
    if missing.check_id == GAP_CHECK_ID and missing.last_offset is not None:
        end_offset = missing.last_offset + 1  # the base offset of the next batch
    elif missing.check_id == "SEG-11":
        end_offset = missing.base_offset
    else:
        return partition.path
    files = [each.log.path for each in partition.segments if each.base_offset <= end_offset]
    return files[-1] if files else partition.path


class EpochCheck:
    """The check of `leader-epoch-checkpoint`, fed with the batches of the partition as tables.

    Attributes:
        has_epochs: some batch has a leader epoch, as written since 0.11.
    """

    def __init__(
        self, partition: Partition, circumstances: Circumstances, collector: Collector
    ) -> None:
        self._circumstances = circumstances
        self._collector = collector
        # 1.1 empties the file of a log that it will delete. No follower requests its epochs.
        self._is_followed = not partition.is_set_aside
        self._path = str(Path(partition.path, LEADER_EPOCHS_NAME))
        self._entries = self._read(partition)
        self._starts = np.array([each.start_offset for each in self._entries], np.int64)
        self._epochs = np.array([each.epoch for each in self._entries], np.int64)
        self.has_epochs = False
        self._was_wrong = False

    def _read(self, partition: Partition) -> list[LeaderEpochEntry]:
        data = partition.read_file(partition.files.other(LEADER_EPOCHS_NAME))
        if data is None:
            return []
        try:
            entries = parse_leader_epochs(data)
        except FormatError as error:
            # REC-2: a field that is no number, or below 0, ends the start. Else: an I/O error.
            action = REFUSES if isinstance(error, NotANumberError) else LOSES_LOG_DIR
            self._collector.add_error(error, path=self._path, broker_action=action)
            return []
        # A broker accepts wrong order, but its map of epochs rejects values below 0.
        is_refused = any(min(each.epoch, each.start_offset) < 0 for each in entries)
        for problem in leader_epoch_problems(data):
            action = REFUSES if is_refused and problem.check_id == "EPC-1" else ""
            self._collector.add_error(problem, path=self._path, broker_action=action)
        return entries

    def take(self, table: HeaderTable, log_path: str, doubtful: set[int]) -> None:
        """Check EPC-3: the epoch in force at each batch's base offset is the batch's own.

        Batches at `doubtful` positions have an impossible offset, and are not checked.
        """
        is_judged = (table.magic >= MAGIC_V2) & (table.partition_leader_epoch >= 0)
        is_judged &= table.base_offset >= self._circumstances.log_start_offset
        is_judged &= table.crc_ok
        is_judged &= ~np.isin(table.pos, list(doubtful))
        if not is_judged.any():
            return
        self.has_epochs = True
        if not len(self._starts):
            return
        entry = np.searchsorted(self._starts, table.base_offset, "right") - 1
        epoch = np.where(entry >= 0, self._epochs[entry], -1)
        is_wrong = is_judged & (epoch != table.partition_leader_epoch)
        # A higher log start offset removes lower epochs from the file. If a crash undoes that move,
        # the batches exist again (LeaderEpochFileCache.truncateFromStart).
        is_wrong &= (entry >= 0) | (table.partition_leader_epoch > self._epochs[0])
        before = np.concatenate(([self._was_wrong], is_wrong[:-1]))
        self._was_wrong = bool(is_wrong[-1])
        for row in np.flatnonzero(is_wrong & ~before).tolist():
            offset = int(table.base_offset[row])
            self._collector.add(
                "EPC-3",
                self._path,
                f"from offset {offset} on, batches of {Path(log_path).name} have another epoch",
                severity=Severity.NOTE if entry[row] < 0 else None,
                base_offset=offset,
                expected=f"epoch {int(table.partition_leader_epoch[row])}",
                found=f"epoch {int(epoch[row])}" if entry[row] >= 0 else "no entry",
            )

    def finish(self) -> None:
        """Check EPC-2 and EPC-4."""
        if self.has_epochs and not self._entries and self._is_followed:
            self._collector.add(
                "EPC-4",
                self._path,
                "no leader epochs, while the batches have some: followers would be truncated at "
                "the high watermark",
            )
        end_offset = self._circumstances.end_offset
        is_end_read = self._circumstances.is_end_read
        if self._entries and is_end_read and self._entries[-1].start_offset > end_offset:
            self._collector.add(
                "EPC-2",
                self._path,
                "the last epoch begins beyond the log",
                expected=f"<= {end_offset}",
                found=str(self._entries[-1].start_offset),
            )
