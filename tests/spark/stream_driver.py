"""A query from a log dir into Parquet, in a process that may be killed: `python -m ... LOGS OUT`.

A line is printed for each micro-batch that has ended.
"""

from __future__ import annotations

import sys
from typing import Any

from eoctl.spark.datasource import register
from eoctl.spark.session import spark_session

OFFSETS_PER_TRIGGER = 150


def main(logs: str, out: str) -> None:
    """Read all that is there, in small micro-batches, into OUT/rows."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            """Tell nothing."""

        def onQueryProgress(self, event: Any) -> None:
            """Tell of a micro-batch."""
            sys.__stdout__.write(f"{event.progress.batchId}\n")  # type: ignore[union-attr]
            sys.__stdout__.flush()  # type: ignore[union-attr]

        def onQueryIdle(self, event: Any) -> None:
            """Tell nothing."""

        def onQueryTerminated(self, event: Any) -> None:
            """Tell nothing."""

    with spark_session("local[2]") as session:
        register(session)
        session.streams.addListener(Listener())
        stream = session.readStream.format("kafka-log-records").option(
            "isolation", "read_committed"
        )
        stream = stream.option("schema", "kafka").option(
            "maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER
        )
        writer = stream.load(logs).writeStream.format("parquet").option("path", f"{out}/rows")
        writer = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
