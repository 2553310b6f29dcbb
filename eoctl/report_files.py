"""Reports as tables and as Parquet files, one file for each report."""

from __future__ import annotations

import os
from errno import EACCES, ENOTDIR
from itertools import islice
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any

from eoctl.console.columns import Kind, facts_of
from eoctl.libraries import REQUIREMENTS, install_call
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, UsageError
from storage.files import fsio
from storage.files.fsio import own_attributes, umask
from storage.files.uris import is_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

CHUNK_ROWS = 1 << 16  # in memory at a time
# Columns whose type in a file differs from the type for people (`eoctl.console.columns`).
TEXTS = frozenset({"broker", "other_broker", "check_id", "transactional_id"})
NUMBERS = frozenset({"expected", "found"})
TEXT_LISTS = frozenset({"committed_in", "aborted_in", "open_in"})
NUMBER_LISTS = frozenset({"producer_ids"})
TEXT_KINDS = frozenset({Kind.TEXT, Kind.PATH, Kind.STATE})


def require_target(directory: str) -> None:
    """Check that reports can be written there, before the work begins.

    Raises:
        RefusedError: the directory lies in a log dir.
        UsageError: pyarrow is not installed, or the path is a URI.
        AccessError: the directory is not writable.
    """
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise UsageError(
            "--to writes Parquet, and pyarrow is not installed",
            next_step=install_call(REQUIREMENTS["pyarrow"]),
        )
    require_outside_log_dirs(directory, "name a directory elsewhere")
    if not directory:
        raise UsageError("--to: no directory is named")
    if is_uri(directory):
        raise UsageError(f"--to {directory}: reports go into a local directory, not behind a URI")
    target = Path(directory).absolute()
    place = target if target.exists() else target.parent
    try:
        is_dir = S_ISDIR(place.stat().st_mode)
    except OSError as exc:
        raise AccessError(exc, str(place)) from exc
    if not (is_dir and os.access(place, os.W_OK | os.X_OK)):
        code = EACCES if is_dir else ENOTDIR
        raise AccessError(OSError(code, os.strerror(code)), str(place))


def write_reports(
    directory: str, reports: Mapping[str, tuple[tuple[str, ...], Iterable[Sequence[Any]]]]
) -> None:
    """Write NAME.parquet for each report, durably. Files of these names are replaced.

    Args:
        directory: is created if it does not exist, but its parent must exist.
        reports: columns and rows by name.

    Raises:
        AccessError: the operating system refused.
    """
    from io import BytesIO

    from pyarrow import parquet

    fs = fsio.FileSystem()
    if not Path(directory).is_dir():
        try:
            fs.make_dir(directory, 0o777 & ~umask())
        except OSError as exc:
            raise AccessError(exc, directory) from exc
    for name, (columns, rows) in reports.items():
        buffer = BytesIO()
        with parquet.ParquetWriter(buffer, report_schema(columns)) as writer:
            for table in report_tables(columns, rows):
                writer.write_table(table)
        path = Path(directory, f"{name}.parquet")
        fsio.replace_file(fs, path, buffer.getvalue(), attributes=own_attributes())


def report_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the types of the columns of a report."""
    import pyarrow as pa

    return pa.schema([(column, _type_of(column)) for column in columns])


def report_tables(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[pa.Table]:
    """Yield the rows of a report as Arrow tables of CHUNK_ROWS, at least one table."""
    import pyarrow as pa

    schema = report_schema(columns)
    left = iter(rows)
    chunk = [*islice(left, CHUNK_ROWS)]
    while True:
        values = zip(*chunk, strict=True) if chunk else [()] * len(columns)
        arrays = [pa.array(each, field.type) for each, field in zip(values, schema, strict=True)]
        yield pa.Table.from_arrays(arrays, schema=schema)
        chunk = [*islice(left, CHUNK_ROWS)]
        if not chunk:
            return


def _type_of(column: str) -> Any:
    import pyarrow as pa

    if column in TEXT_LISTS:
        return pa.list_(pa.string())
    if column in NUMBER_LISTS:
        return pa.list_(pa.int64())
    kind = facts_of(column).kind
    if column in TEXTS or (kind in TEXT_KINDS and column not in NUMBERS):
        return pa.string()
    return pa.bool_() if kind is Kind.FLAG else pa.int64()
