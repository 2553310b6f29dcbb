"""`eoctl check`: the fsck."""

from __future__ import annotations

from typing import Annotated

from eoctl.declared import option
from eoctl.options import (
    FailOn,
    Jobs,
    MetadataDir,
    Now,
    Output,
    Paths,
    ServerProperties,
    Topics,
    given_paths,
    process_count,
)
from eoctl.output import OutputFormat
from recovery.rules.findings import Severity
from storage.errors import UsageError

CheckExpiryMs = Annotated[
    int | None,
    option(
        "--producer-expiry-ms",
        "--producer-id-expiration-ms",
        min=0,
        metavar="MS",
        help="producer.id.expiration.ms of the broker.",
        show_default="86400000",
    ),
]


def command(
    paths: Paths = None,
    server_properties: ServerProperties = None,
    metadata_dir: MetadataDir = None,
    deep: Annotated[bool, option("--deep", help="Decompress and decode all records too.")] = False,
    fast: Annotated[bool, option("--fast", help="Headers only: no checksums, no records.")] = False,
    topic: Topics = None,
    since: Annotated[
        str | None,
        option(metavar="TIME", help="Only partitions with files changed since this time."),
    ] = None,
    predict: Annotated[
        bool,
        option("--predict", help="Also list every file that the next broker start changes."),
    ] = False,
    reclaim: Annotated[
        bool, option("--reclaim", help="Also list what can be removed from a full disk.")
    ] = False,
    broker_version: Annotated[
        str | None,
        option(
            metavar="VERSION", help="Kafka release that will start, 2.8 to 4.3.", show_default="4.3"
        ),
    ] = None,
    resume: Annotated[
        str | None,
        option(metavar="FILE", help="Save results in FILE, and reuse those that still hold."),
    ] = None,
    jobs: Jobs = None,
    io_limit: Annotated[
        int,
        option(metavar="MIB", min=0, help="Read at most this many MiB per second; 0: no limit."),
    ] = 0,
    explain: Annotated[
        str | None,
        option(metavar="ID", help="Explain a rule (BAT-1) or a family (BAT); takes no PATH."),
    ] = None,
    now: Now = None,
    producer_expiry_ms: CheckExpiryMs = None,
    fail_on: FailOn = Severity.WARNING,
    verbose: Annotated[
        bool, option("--verbose", "-v", help="All fields, on a terminal too.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Check partitions, or whole log dirs, against the rules a broker lives by.

    Each finding has the rule it breaks, where, how grave it is, and what a broker does about it at
    its next start. What is normal after a clean stop, after a crash, or in use is no finding.
    """
    wanted = given_paths(paths, server_properties)
    if explain is not None:
        if wanted:
            raise UsageError(
                "--explain takes no PATH", next_step=f"eoctl check --explain {explain}"
            )
        from eoctl.runs.checking.explain import explain_rules

        return explain_rules(explain, output)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl check PATH...")
    if deep and fast:
        raise UsageError("--deep and --fast exclude each other")
    from eoctl.runs.checking.check import run_check
    from eoctl.runs.checking.run import CheckRequest

    return run_check(
        CheckRequest(
            wanted,
            metadata_dir=metadata_dir,
            is_deep=deep,
            is_fast=fast,
            topics=tuple(topic or ()),
            since=since,
            predicts=predict,
            reclaims=reclaim,
            jobs=process_count(jobs),
            io_limit_mib=io_limit,
            now=now,
            expiration_ms=producer_expiry_ms,
            fail_on=fail_on,
            resume=resume,
            server_properties=server_properties,
            broker_version=broker_version,
            is_verbose=verbose,
        ),
        output,
    )
