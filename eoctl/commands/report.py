"""`eoctl report`: one HTML file with timelines, to attach to an incident."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from eoctl.declared import option
from eoctl.options import (
    Jobs,
    MetadataDir,
    Now,
    Output,
    Paths,
    ProducerExpiryMs,
    ServerProperties,
    Topics,
    given_paths,
    process_count,
)
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS


class Redacted(StrEnum):
    """What `--redact` takes."""

    NAMES = "names"


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    to: Annotated[str | None, option(metavar="FILE", help="Write the page to this file.")] = None,
    force: Annotated[bool, option("--force", help="Replace FILE if it is there.")] = False,
    title: Annotated[str, option(metavar="TEXT", help="Title of the page.")] = "",
    topic: Topics = None,
    transactional_id: Annotated[
        list[str] | None,
        option(metavar="ID", help="Only transactions of this transactional.id; repeatable."),
    ] = None,
    from_time: Annotated[
        str | None, option(metavar="TIME", help="Only what happened at this time or later.")
    ] = None,
    to_time: Annotated[
        str | None, option(metavar="TIME", help="Only what happened at this time or before.")
    ] = None,
    max_lanes: Annotated[
        int, option(min=1, metavar="N", help="Draw at most N lanes of each kind.")
    ] = 200,
    redact: Annotated[
        Redacted | None, option(help="Write pseudonyms in the place of names and paths.")
    ] = None,
    key_file: Annotated[
        str | None,
        option(metavar="FILE", help="Key of the pseudonyms; it is made if it is not there."),
    ] = None,
    deep: Annotated[
        bool, option("--deep", help="Decode all records; look for suspected duplicates too.")
    ] = False,
    coordinator_dir: Annotated[
        list[str] | None,
        option(metavar="DIR", help="Log dir with __transaction_state; repeatable."),
    ] = None,
    metadata_dir: MetadataDir = None,
    jobs: Jobs = None,
    now: Now = None,
    producer_expiry_ms: ProducerExpiryMs = None,
    transaction_max_timeout_ms: Annotated[
        int,
        option(
            min=1,
            metavar="MS",
            help="transaction.max.timeout.ms of the brokers.",
            show_default=str(DEFAULT_MAX_TIMEOUT_MS),
        ),
    ] = DEFAULT_MAX_TIMEOUT_MS,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Make one HTML file of what is there: verdict, timelines, findings, transactions, copies.

    Everything is read as by check, in the same pass. The file needs no network and no server; it
    holds no keys and no values. The exit status is that of check.
    """
    wanted = given_paths(paths, server_properties)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl report PATH... --to report.html")
    from eoctl.clock import parse_time_ms
    from eoctl.runs.report.request import ReportRequest
    from eoctl.runs.report.run import run_report

    return run_report(
        ReportRequest(
            wanted,
            to=to,
            is_forced=force,
            metadata_dir=metadata_dir,
            coordinator_dirs=tuple(coordinator_dir or ()),
            topics=tuple(topic or ()),
            transactional_ids=tuple(transactional_id or ()),
            from_ms=None if from_time is None else parse_time_ms(from_time),
            to_ms=None if to_time is None else parse_time_ms(to_time),
            max_lanes=max_lanes,
            title=title,
            redacts=redact is not None,
            key_file=key_file,
            is_deep=deep,
            jobs=process_count(jobs),
            now=now,
            expiration_ms=producer_expiry_ms,
            max_timeout_ms=transaction_max_timeout_ms,
            server_properties=server_properties,
        ),
        output,
    )
