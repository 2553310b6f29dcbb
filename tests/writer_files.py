"""The files of a partition against `tests.writer_model`, and against a rebuild of its logs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from recovery.rebuild.derive import rebuild_partition
from storage.files.fsio import TEMP_SUFFIX
from tests.writer_model import snapshot_entries
from tests.writing import content, headers_of, partition_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from recovery.rebuild.derive import RebuildSettings
    from tests.writer_model import Model


def require_files_of_model(directory: Path, model: Model) -> None:
    """Every batch, abort, producer and epoch is what the model has, and no other is there."""
    files = content(directory)
    bases = [each.base for each in model.segments]
    assert sorted(int(name[:20]) for name in files if name.endswith(".log")) == bases
    found = [
        (
            each.base_offset,
            each.last_offset,
            each.batch_bytes,
            each.partition_leader_epoch,
            each.producer_id,
            each.producer_epoch,
            each.base_sequence,
            each.is_transactional,
            each.max_timestamp_ms,
            each.is_control,
        )
        for each in headers_of(directory)
    ]
    rows = [row for segment in model.segments for row in segment.rows]
    assert found == [(*list(vars(row).values())[:-1], row.marker is not None) for row in rows]
    for segment in model.segments:
        log = files[f"{segment.base:020d}.log"]
        assert len(log) == segment.size
        aborted = files.get(f"{segment.base:020d}.txnindex", b"")
        assert list(struct.iter_unpack(">hqqqq", aborted)) == [(0, *x) for x in segment.aborted]
    snapshots = {name for name in files if name.endswith(".snapshot")}
    assert {int(name[:20]) for name in snapshots} == set(model.snapshots)
    for offset, state in model.snapshots.items():
        data = files[f"{offset:020d}.snapshot"]
        assert sorted(struct.iter_unpack(">qhiqiqiq", data[10:])) == snapshot_entries(state)
    lines = [f"{epoch} {start}" for epoch, start in model.epochs]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    assert files["leader-epoch-checkpoint"].decode() == text


def require_files_of_rebuild(
    directory: Path,
    settings: RebuildSettings,
    *,
    is_recovered: bool = False,
    cut_bases: Collection[int] = (),
) -> None:
    """What is derived from the `.log` files alone is on disk, byte for byte.

    An empty `.txnindex` may be there or not, and an empty segment needs no indexes. A partition that was not just recovered has also
    snapshots at the ends that its log had earlier, and `.timeindex` of a segment that was truncated
    (`cut_bases`) lacks the last entry until the segment is written to.
    """
    rebuilt = dict(rebuild_partition(partition_at(directory), settings).files())
    files = content(directory)
    for name, data in rebuilt.items():
        if name.endswith(".txnindex") or not files.get(f"{name[:20]}.log", b"-"):
            assert files.get(name, b"") == data, name
        elif not name.endswith(".timeindex") or int(name[:20]) not in cut_bases:
            assert files.get(name) == data, name
    ignored = (".log", TEMP_SUFFIX)
    others = {name for name in set(files) - set(rebuilt) if not name.endswith(ignored)}
    others -= {name for name in others if name.endswith(".txnindex") and not files[name]}
    if not is_recovered:
        others = {name for name in others if not name.endswith(".snapshot")}
    assert others == {"partition.metadata"}
