"""Sources to which something happens; in a module of its own, which executors import."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.spark.datasource import AuditReader, KafkaLogAudit, SplitsInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from storage.places.splits import Split

DIED = "died"  # beside a partition's directory: a worker has been killed there


class DeletingReader(AuditReader):
    """Somebody removes the first segment between planning and reading."""

    def partitions(self) -> Sequence[InputPartition]:
        planned = super().partitions()
        for task in planned[:1]:
            assert isinstance(task, SplitsInput)
            Path(task.splits[0].place.path).unlink()
        return planned


class DyingReader(AuditReader):
    """The first process that reads of a log dir is killed in the middle of its task."""

    def read_segment(self, split: Split, number: int) -> Iterator[pa.RecordBatch]:
        yield from super().read_segment(split, number)
        died = Path(split.place.directory).parent / DIED
        if not died.exists():
            died.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


class DeletingAudit(KafkaLogAudit):
    format_name = "audit-that-deletes"

    def reader(self, schema: Any) -> DeletingReader:
        return DeletingReader(self.options)


class DyingAudit(KafkaLogAudit):
    format_name = "audit-that-dies"

    def reader(self, schema: Any) -> DyingReader:
        return DyingReader(self.options)
