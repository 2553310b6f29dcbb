"""What the native kernel prints of a segment, with what the plain functions add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.dump.log_text import PrintingScan, PrintTo, as_it_stands
from storage.kernels.kernel_choice import native_module
from tests.text.plain_text import Said, Speaker

if TYPE_CHECKING:
    from storage.log.segment import Segment


def say_natively(
    segment: Segment, *, resume: bool, threads: int, max_batch_bytes: int = 256 << 20, **mode: Any
) -> Said:
    native = native_module()
    assert native is not None
    speaker = Speaker(segment, max_batch_bytes=max_batch_bytes, **mode)

    def after(last_offset: int, pairs: list[tuple[int, int]]) -> None:
        speaker.last_offset = last_offset
        speaker.pairs.update(pairs)

    records = (mode["print_data"], mode["skip_record_metadata"])
    print_to = PrintTo(
        records=records if mode["deep"] else None,
        max_batch_bytes=max_batch_bytes,
        threads=threads,
        write=speaker.text.extend,
        before=lambda: speaker.last_offset,
        after=after,
    )
    scan = PrintingScan(segment, native, print_to, resume=resume)
    for batch in scan:
        if batch.pos >= scan.printed_pos:
            speaker.say(batch, as_it_stands(scan, batch))
    return speaker.said(scan)
