"""Log dirs in an object store: a real S3 server on the loopback, read in batches and as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from moto.server import ThreadedMotoServer
from pyarrow import fs

from eoctl.spark.datasource import RecordsReader, register
from tests.spark.running import spark
from tests.spark.test_datasource import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["spark"]

PARTITIONS = ("txn-0", "txn-1", "rolled-0")
FILES = ("meta.properties", "replication-offset-checkpoint", "recovery-point-offset-checkpoint")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a server with nothing in it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def uploaded(endpoint: str, clean: Path) -> str:
    """A URI, as Hadoop spells it, of a log dir with a few partitions."""
    s3 = fs.S3FileSystem(
        access_key="key", secret_key="secret", scheme="http", endpoint_override=endpoint,
        region="us-east-1", allow_bucket_creation=True,
    )  # fmt: skip
    s3.create_dir("bucket")
    for name in (*FILES, *PARTITIONS):
        for path in sorted((clean / name).rglob("*")) or [clean / name]:
            with s3.open_output_stream(f"bucket/logs/{path.relative_to(clean)}") as stream:
                stream.write(path.read_bytes())
    query = f"endpoint_override={endpoint.replace(':', '%3A')}&scheme=http&region=us-east-1"
    return f"s3a://key:secret@bucket/logs?{query}"


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    return golden("kafka-4.3.1") / "clean"


def rows_of(frame: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.exhaustive
def test_batches_and_streams(
    uploaded: str, clean: Path, spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    columns = ("topic", "partition", "offset", "value")
    options = {"columns": ",".join(columns), "isolation": "read_committed"}
    expected = sorted(
        tuple(row[name] for name in columns)
        for row in read(RecordsReader, *(clean / name for name in PARTITIONS), **options)
    )
    assert len(expected) > 300
    frame = spark.read.format("kafka-log-records").options(**options).load(uploaded)
    assert rows_of(frame) == expected
    # Each task proves its cuts by what it sees of the objects.
    cut = spark.read.format("kafka-log-records").options(**options, split_bytes=4000)
    assert rows_of(cut.load(uploaded)) == expected
    stream = spark.readStream.format("kafka-log-records").options(**options)
    writer = stream.option("maxBytesPerTrigger", 100_000).load(uploaded).writeStream
    writer = writer.format("parquet").option("path", str(tmp_path / "rows"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert rows_of(spark.read.parquet(str(tmp_path / "rows"))) == expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", [("local", "--jobs", "1"), ("spark",)], ids=lambda each: each[0])
def test_the_audit(
    uploaded: str, clean: Path, eoctl: Callable[..., Any], engine: tuple[str, ...]
) -> None:
    call = ("spark-audit", "--engine", *engine, "--columns", "topic,partition,records")
    paths = (uploaded.replace("/logs?", "/logs/txn-0?"), clean / "txn-0")
    found, expected = (eoctl(*call, path) for path in paths)
    assert (found.status, found.text) == (expected.status, expected.text) == (0, expected.text)
