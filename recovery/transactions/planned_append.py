"""What a coordinator would append to a partition, as the files of a plan.

It goes into new segments: a log may be rolled at any time (ROLL-1), so the `.log` that is there
keeps every byte, and undo is to take the new files away. Beside each new one stand the files of a
clean stop: both indexes, `.txnindex` with what was aborted (TXN-6), the snapshot at its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.plan import absolute_path, replace_step
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS
from storage.writing.partition_store import PlannedStore
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.changes.plans.plan import Step
    from storage.dirs.log_tail import LogTail
    from storage.dirs.topic_settings import LogConfig


class _FilesStore(PlannedStore):
    """Keeps what would be written.

    Attributes:
        contents: by file name, in the order in which a writer makes the files.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.contents: dict[str, bytes] = {}
        self._name = ""

    @property
    def logs(self) -> dict[str, bytes]:
        """The new segments."""
        return {name: data for name, data in self.contents.items() if name.endswith(".log")}

    def open_log(self, base_offset: int, log_bytes: int) -> None:
        assert not log_bytes, "what is appended goes into a segment of its own"
        super().open_log(base_offset, log_bytes)
        self._name = f"{base_offset:020d}.log"

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        super().append(batch)
        self.contents[self._name] = self.contents.get(self._name, b"") + bytes(batch)

    def _replace(self, name: str, data: bytes) -> None:
        super()._replace(name, data)
        self.contents[name] = data


class PlannedAppends:
    """The end of one partition directory, and what is appended there. Reads only.

    Args:
        directory: of the partition.
        tail: its end; closed, or as it will be when its recovery was carried out.
        config: the topic's settings.
        leader_epoch: what batches are stamped with.
        now_ms: the clock, which stands still: copies of a partition get the same bytes.
        expiration_ms: producer.id.expiration.ms.

    Attributes:
        writer: takes the batches; the first one opens a segment, unless the last one is empty.
    """

    def __init__(
        self,
        directory: str,
        tail: LogTail,
        config: LogConfig,
        *,
        leader_epoch: int,
        now_ms: int,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        self._directory = Path(absolute_path(directory))
        self._store = _FilesStore(directory)
        self.writer = PartitionWriter(
            self._store,
            tail,
            config,
            leader_epoch=leader_epoch,
            now_ms=lambda: now_ms,
            expiration_ms=expiration_ms,
        )
        self.writer.roll_next()

    @property
    def logs(self) -> dict[str, bytes]:
        """The new segments by file name."""
        return self._store.logs

    @property
    def last_stable_offset(self) -> int:
        """Behind what was appended, with everything replicated."""
        first_undecided = self.writer.producers.first_undecided_offset
        return self.writer.end_offset if first_undecided is None else first_undecided

    def steps(self, reason: str) -> list[list[Step]]:
        """Close it, and give the files that are made or replaced: a list for each new segment.

        In each the `.log` comes before what is derived from it. One that has the planned content
        already is left out.
        """
        self.writer.close()
        found: list[list[Step]] = [[]]
        for name, content in self._store.contents.items():
            if name.endswith(".log") and any(each.path.endswith(".log") for each in found[-1]):
                found.append([])
            step = replace_step(str(self._directory / name), content, reason)
            if not _is_there(step):
                found[-1].append(step)
        return found


def _is_there(step: Step) -> bool:
    """Whether a file has the planned content already."""
    if step.before is None or step.before.file_bytes != step.after_bytes:
        return False
    return Path(step.path).read_bytes() == step.content


def with_recovery(recovery: Iterable[Step], appended: Iterable[Step]) -> Iterator[Step]:
    """Put the steps of a recovery before those of what is appended; a file is changed once."""
    appended = list(appended)
    touched = {each.path for each in appended}
    yield from (each for each in recovery if each.path not in touched)
    yield from appended
