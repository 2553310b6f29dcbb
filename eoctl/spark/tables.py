"""Reports as tables of Delta Lake or Iceberg, written by a Spark session with their jars.

- delta, `--to DIR` or URI: a table DIR/partitions, and so on for each report.
- iceberg, `--to CATALOG.DATABASE`: a table CATALOG.DATABASE.partitions, and so on.

Each run replaces the rows of the previous run, which remain readable as an older version of their
table. Reports with topics are partitioned by topic.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.options import ReportFormat
from eoctl.report_files import report_tables
from eoctl.spark.executors import SparkUnavailableError, is_remote
from eoctl.spark.session import job_errors
from storage.errors import UsageError
from storage.files.uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

DATABASE = re.compile(r"(?P<catalog>\w+)\.\w+")
PARTITIONED_BY = "topic"
PACKAGES = {
    ReportFormat.DELTA: (
        "--conf spark.jars.packages=io.delta:delta-spark_{spark}_2.13:VERSION"
        " --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
        " --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    ReportFormat.ICEBERG: (
        "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:VERSION"
        " --conf spark.sql.catalog.{catalog}=org.apache.iceberg.spark.SparkCatalog"
        " --conf spark.sql.catalog.{catalog}.type=hadoop"
        " --conf spark.sql.catalog.{catalog}.warehouse=DIR"
    ),
}


class TableTarget(NamedTuple):
    """Target of tables: `to` is a directory or URI of Delta, or `CATALOG.DATABASE` of Iceberg."""

    kind: ReportFormat
    to: str

    @property
    def catalog(self) -> str:
        """The catalog of Iceberg's tables, "" for Delta."""
        found = DATABASE.fullmatch(self.to)
        return found["catalog"] if found and self.kind is ReportFormat.ICEBERG else ""

    def require_named(self) -> None:
        """Check that `to` names a place for such tables. Raises UsageError, RefusedError."""
        from storage.dirs.discovery import require_outside_log_dirs

        if self.kind is ReportFormat.ICEBERG:
            if not self.catalog:
                raise UsageError(
                    f"--to {self.to}: tables of Iceberg have a catalog and a database",
                    next_step="--to CATALOG.DATABASE",
                )
        elif not self.to.startswith("/") and not is_uri(self.to):
            raise UsageError(
                f"--to {self.to}: executors have other working directories",
                next_step="name the directory in full, or a URI",
            )
        elif not is_uri(self.to):
            require_outside_log_dirs(self.to, "name a directory elsewhere")

    def next_step(self, spark: str = "4.0") -> str:
        """Return the settings that a session of Spark `spark` needs."""
        release = ".".join(spark.split(".")[:2])
        return PACKAGES[self.kind].format(spark=release, catalog=self.catalog or "CATALOG")

    def require_in(self, session: SparkSession) -> None:
        """Check that the session can write such tables, before the work begins.

        Raises:
            SparkUnavailableError: it does not have the jars, or is not set up for them.
        """
        name = self.kind.value
        if is_remote(session):
            raise SparkUnavailableError(
                f"--to-format {name}: over Spark Connect nobody can see if Spark has it",
                next_step="--master spark://HOST:7077 or yarn, or --to-format parquet",
            )
        jvm: Any = session._jvm  # noqa: SLF001 - there is no other way to ask
        state: Any = session._jsparkSession  # noqa: SLF001
        source = jvm.org.apache.spark.sql.execution.datasources.DataSource
        try:
            source.lookupDataSource(name, state.sessionState().conf())
        except Exception as exc:  # py4j's error, if the JVM does not know the source
            raise SparkUnavailableError(
                f"--to-format {name}: this Spark has no {name}, whose jars are not in the session",
                next_step=self.next_step(session.version),
            ) from exc
        wanted = "spark.sql.extensions"
        if self.catalog:
            wanted = f"spark.sql.catalog.{self.catalog}"
        known = session.conf.get(wanted, "") or ""
        if not (known if self.catalog else "delta" in known):
            raise SparkUnavailableError(
                f"--to-format {name}: the session is not set up for it: {wanted} is not set",
                next_step=self.next_step(session.version),
            )


def write_tables(
    session: SparkSession,
    target: TableTarget,
    reports: Mapping[str, tuple[tuple[str, ...], Iterable[Sequence[Any]]]],
) -> None:
    """Write a table for each report, and replace the previous rows of the table.

    Args:
        session: a session that `target.require_in` accepted.
        target: where the tables go.
        reports: columns and rows by name.

    Raises:
        SparkJobError: a table could not be written. Earlier tables are written.
    """
    import pyarrow as pa

    with job_errors():
        if target.kind is ReportFormat.ICEBERG:
            session.sql(f"CREATE NAMESPACE IF NOT EXISTS {target.to}")
        for name, (columns, rows) in reports.items():
            table = pa.concat_tables(report_tables(columns, rows))
            frame = session.createDataFrame(table).coalesce(1)
            _write_table(frame, target, name.replace("-", "_"))


def _write_table(frame: DataFrame, target: TableTarget, name: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    is_partitioned = PARTITIONED_BY in frame.columns
    if target.kind is ReportFormat.ICEBERG:
        tables = frame.writeTo(f"{target.to}.{name}").using(target.kind.value)
        (
            tables.partitionedBy(F.col(PARTITIONED_BY)) if is_partitioned else tables
        ).createOrReplace()
        return
    files = frame.write.format(target.kind.value).mode("overwrite")
    files = files.option("overwriteSchema", "true")
    if is_partitioned:
        files = files.partitionBy(PARTITIONED_BY)
    files.save(f"{target.to.rstrip('/')}/{name}")
