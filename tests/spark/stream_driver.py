"""A query from a log dir into Parquet, in a process that may be killed: `python -m ... LOGS OUT`.

Where OUT/hold is there, a task of a micro-batch waits for its end, at the place that is named in it:
"before" its rows, "between" them or "after". It tells so with OUT/held.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eoctl.spark.datasource import register
from eoctl.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OFFSETS_PER_TRIGGER = 150
HOLD, HELD = "hold", "held"
PLACES = ("before", "between", "after")


def hold_at(out: str, place: str) -> None:
    """Wait while the micro-batch is to be held at this place."""
    hold = Path(out, HOLD)
    try:
        while hold.read_text() == place:
            Path(out, HELD).touch()
            time.sleep(0.02)
    except FileNotFoundError:
        return


def held(out: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Give the rows of a task as they are."""
    hold_at(out, PLACES[0])
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        hold_at(out, PLACES[1])
        yield batch.slice(half)
    hold_at(out, PLACES[2])


def main(logs: str, out: str) -> None:
    """Read all that is there, in small micro-batches, into OUT/rows."""
    with spark_session("local[2]") as session:
        register(session)
        stream = session.readStream.format("kafka-log-records").option(
            "isolation", "read_committed"
        )
        stream = stream.option("schema", "kafka").option(
            "maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER
        )
        rows = stream.load(logs)
        rows = rows.mapInArrow(partial(held, out), rows.schema)
        writer = rows.writeStream.format("parquet").option("path", f"{out}/rows")
        writer = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
