"""`dump-segment --follow`: a dump that continues as a broker appends batches and rolls segments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from eoctl import output
from eoctl.dump import rows
from eoctl.dump.log_text import LinePrinter
from eoctl.dump.selection import LOG_SUFFIX, BatchFilter, later_segments
from eoctl.dump.session import DumpSession
from storage.errors import AccessError, UsageError
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from eoctl.dump.selection import DumpOptions
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

POLL_SECONDS = 0.25


def follow_log(paths: list[str], options: DumpOptions) -> int:
    """Print the existing batches, then appended batches, until interrupted.

    Args:
        paths: one `.log`, or one partition directory, whose last segment is followed.
        options: as for a dump, without `--only-aborted`, which requires later markers.

    Raises:
        UsageError: not exactly one log, or `--only-aborted`.
        AccessError: the log cannot be opened.
    """
    if len(paths) != 1:
        raise UsageError("--follow takes one .log or one partition directory")
    if options.selection.only_aborted:
        raise UsageError("--follow cannot know which batches will be aborted")
    output.use_format(options.output)
    follower = _Follower(_active_log(paths[0]), options)
    with output.while_read(lambda: follower.session.exit_status):
        while follower.print_new():
            time.sleep(POLL_SECONDS)
    return follower.session.exit_status


def _active_log(path: str) -> str:
    directory = Path(path)
    if not directory.is_dir():
        if not path.endswith(LOG_SUFFIX):
            raise UsageError(f"{path} is no .log", next_step="--follow a .log or its directory")
        return path
    logs = sorted(each.name for each in directory.glob(f"*{LOG_SUFFIX}"))
    if not logs:
        raise UsageError(f"{path} holds no .log")
    return str(directory / logs[-1])


class _Follower:
    def __init__(self, path: str, options: DumpOptions) -> None:
        self.session = DumpSession(options)
        self.wanted = BatchFilter(options.selection)
        self.path = path
        self.pos = 0
        self._printed_heading = False

    def print_new(self) -> bool:
        """Print appended batches. Return False if the log is damaged."""
        while True:
            # Listed before reading, because batches appended after a roll are in the next segment.
            later = later_segments(self.path)
            try:
                is_whole = self._print_segment()
            except AccessError:
                if not later:
                    raise
                is_whole = True  # retention has deleted the segment meanwhile
            output.flush()
            if not is_whole:
                return False
            if not later:
                return True
            self.path, self.pos, self._printed_heading = later[0], 0, False

    def _print_segment(self) -> bool:
        options = self.session.options
        with open_segment(self.path) as segment:
            if options.is_text and not self._printed_heading:
                output.line(f"Dumping {self.path}")
                output.line(f"Log starting offset: {segment.base_offset}")
                self._printed_heading = True
            if segment.file_bytes < self.pos:
                self._step_back(segment)
            scan = segment.scan(start_pos=self.pos, resume=False)
            printer = LinePrinter(segment, self.session, self.wanted)
            for batch in scan:
                if self.wanted.wants_batch(batch):
                    self._print_batch(batch, segment, printer)
            printer.flush()
            self.pos = scan.valid_bytes
        # A torn tail is an append in progress, and zeros are preallocated space.
        damage = [each for each in scan.verdicts if each.kind.is_damage]
        for verdict in damage:
            self.session.verdict(self.path, verdict, is_normal=False)
        return all(each.start_pos < self.pos for each in damage)  # the scan went on

    def _step_back(self, segment: Segment) -> None:
        """Continue after the last remaining batch, because the broker has truncated the log."""
        scan = segment.scan(verify_crc=False, resume=False)
        for _ in scan:
            pass
        self.pos = scan.valid_bytes
        output.message(f"eoctl: {self.path}: truncated; going on from {self.pos}")

    def _print_batch(self, batch: ScannedBatch, segment: Segment, printer: LinePrinter) -> None:
        if self.session.options.is_text:
            printer.print_batch(batch)
            return
        put = output.row_writer(self.session.options.output)
        for row in rows.rows_of_batch(self.path, segment, batch, self.session, self.wanted):
            put(row)
