"""A whole `.log` as kafka-dump-log's lines, in bulk: the twin of printing batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.text.plain import as_it_stands
from eoctl.text.record_lines import LineOptions
from eoctl.text.renderers import DeepRenderer, HeaderRenderer
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.kernels.numpy_kernel import BulkScan, BulkWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.text.renderers import Write
    from storage.errors import FormatError
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.log.segment import Segment


class LogDumpResult(NamedTuple):
    """What is left to report when all lines are written.

    Attributes:
        valid_bytes: end of the last whole batch of the broker's walk.
        verdicts: every stretch that is not ok.
        last_offset: of the last record printed, -1 if there was none (or without `deep`).
        non_consecutive: offset -> the one printed after it, where that is not the next; -1 stands
            before the first. Empty without `deep`.
        is_resynced: good batches were found behind a break of the chain.
    """

    valid_bytes: int
    verdicts: list[Verdict]
    last_offset: int
    non_consecutive: dict[int, int]
    is_resynced: bool = False


def render_log(
    segment: Segment,
    write: Write,
    *,
    deep: bool,
    print_data: bool,
    skip_record_metadata: bool,
    on_error: Callable[[FormatError], object],
    end_pos: int | None = None,
    is_active: bool = True,
    end_offset: int | None = None,
    resume: bool = False,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
) -> LogDumpResult:
    """Write the lines of all batches, and with `deep` of their records; nothing else.

    Keys and values are shown as UTF-8. A batch whose records do not parse has its line and those
    of its records before the fault; the fault is given to `on_error`.

    Args:
        segment: what to print.
        write: takes bytes; what it raises (a closed pipe) ends the work.
        deep: print a line per record too.
        print_data: with `deep`, keys and values as well.
        skip_record_metadata: record lines have nothing but key and value.
        on_error: gets what is wrong with the records of a batch.
        end_pos: how much of the file to look at; None is all of it.
        is_active: as in `Segment.scan`.
        end_offset: as in `Segment.scan`.
        resume: as in `Segment.scan`; False ends where the broker's reader ends.
        max_batch_bytes: a batch that would decompress to more is an error.

    Raises:
        AccessError: a batch that the plain path must read again cannot be read any more.
        OSError: writing failed.
    """
    file_bytes = segment.file_bytes
    end_pos = file_bytes if end_pos is None else min(end_pos, file_bytes)
    renderer = HeaderRenderer(write)
    if deep:
        options = LineOptions(print_data=print_data, skip_record_metadata=skip_record_metadata)
        renderer = DeepRenderer(segment, write, options, max_batch_bytes, on_error)
    scan = BulkScan(
        segment,
        end_pos=end_pos,
        is_active=is_active,
        resume=resume,
        end_offset=end_offset,
    )
    renderer.render(_parts_of(scan))
    follower = renderer.follower
    last_offset = -1 if follower.last_offset is None else follower.last_offset
    return LogDumpResult(
        valid_bytes=scan.valid_bytes,
        verdicts=scan.verdicts,
        last_offset=last_offset,
        non_consecutive=follower.non_consecutive,
        is_resynced=scan.resynced,
    )


def _parts_of(scan: BulkScan) -> Iterator[BulkWindow | ScannedBatch]:
    """Yield the windows of a scan, and its single batches as they are on disk."""
    for part in scan.parts():
        yield part if isinstance(part, BulkWindow) else as_it_stands(scan, part)
