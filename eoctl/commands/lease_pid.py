"""`eoctl lease-pid`: producer ids on lease, from a durable sequence that many processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.limits import INT16_MAX, INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.clients.coordinators.producer_id_topic import IdOptions
    from eoctl.runs.clients.lease import LeaseAnswer

LogDir = Annotated[str, argument(metavar="LOG_DIR", help="One of a broker's log.dirs.")]
AppId = Annotated[str, option(metavar="ID", help="Application that the producer id is leased to.")]
ExpiryMs = Annotated[
    int, option(min=1, max=2**53, metavar="MS", help="Duration of the lease from now on.")
]
Generation = Annotated[
    int, option(min=0, max=INT16_MAX, metavar="N", help="Generation that acquire returned.")
]
WaitMs = Annotated[int, option(min=0, metavar="MS", help="How long to wait for the lock.")]
TopicId = Annotated[
    str | None, option(metavar="ID", help="Topic id, if the cluster does not know the topic.")
]
SingleCopy = Annotated[
    bool, option("--single-copy", help="This is the only replica of the topic that counts.")
]
BlockSize = Annotated[
    int,
    option(min=1, max=1_000_000, metavar="N", help="Ids taken from the sequence at once."),
]
Now = Annotated[
    str | None,
    option(metavar="TIME|wall|dir", help="The clock for leases.", show_default="wall"),
]


def acquire(
    log_dir: LogDir,
    app_id: AppId,
    expiry_ms: ExpiryMs,
    topic: Annotated[
        list[str] | None,
        option(metavar="TOPIC", help="Topic of a partition to write to; repeatable."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        option(min=0, max=INT32_MAX, metavar="N", help="Partition number, one for each --topic."),
    ] = None,
    block_size: BlockSize = 1000,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: SingleCopy = False,
    now: Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Lease a producer id; an app id gets its own one again, and the former holder is fenced.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from eoctl.clients.partitions.target import require_legal
    from eoctl.runs.clients import lease as lease_run
    from storage.files.fsio import FileSystem

    topics, numbers = topic or [], partition or []
    for each in topics:
        require_legal(each)
    chosen = _options(
        metadata_dir,
        topic_id,
        single_copy,
        broker_is_stopped,
        wait_ms,
        now,
        producer_expiry_ms,
    )._replace(block_size=block_size)
    if len(topics) != len(numbers):
        raise UsageError(
            f"{len(topics)} --topic and {len(numbers)} --partition",
            next_step="--topic T --partition P for each partition",
        )
    partitions = tuple(zip(topics, numbers, strict=True))
    if len(set(partitions)) < len(partitions):
        raise UsageError("a partition is named twice")
    answer = lease_run.acquire(log_dir, app_id, expiry_ms, partitions, chosen, FileSystem())
    return _print("lease", lease_run.LeaseRow._fields, answer, output)


def renew(
    log_dir: LogDir,
    app_id: AppId,
    generation: Generation,
    expiry_ms: ExpiryMs,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: SingleCopy = False,
    now: Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Extend a lease; refused to a former holder.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from eoctl.runs.clients import lease as lease_run
    from storage.files.fsio import FileSystem

    chosen = _options(
        metadata_dir,
        topic_id,
        single_copy,
        broker_is_stopped,
        wait_ms,
        now,
        producer_expiry_ms,
    )
    answer = lease_run.renew(log_dir, app_id, generation, expiry_ms, chosen, FileSystem())
    return _print("lease", lease_run.LeaseRow._fields, answer, output)


def release(
    log_dir: LogDir,
    app_id: AppId,
    generation: Generation,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: SingleCopy = False,
    now: Now = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Give a lease up; refused to a former holder.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from eoctl.runs.clients import lease as lease_run
    from storage.files.fsio import FileSystem

    chosen = _options(metadata_dir, topic_id, single_copy, broker_is_stopped, wait_ms, now, None)
    answer = lease_run.release(log_dir, app_id, generation, chosen, FileSystem())
    return _print("released", lease_run.ListRow._fields, answer, output)


def list_leases(
    log_dir: LogDir, now: Now = None, output: options.Output = OutputFormat.TEXT
) -> int:
    """List all leases, and how far the sequence of ids has come; takes no lock."""
    from eoctl.output import Report, emit, line
    from eoctl.runs.clients import lease as lease_run

    answer, sequence = lease_run.list_leases(log_dir, now)
    status = _print("lease", lease_run.ListRow._fields, answer, output)
    if output is OutputFormat.TEXT:
        line("")
    emit(Report("sequence", lease_run.SequenceRow._fields, [sequence]), output)
    return status


def expire(
    log_dir: LogDir,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: SingleCopy = False,
    now: Now = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Free the ids of leases that nobody holds and that no producer state knows any more.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from eoctl.runs.clients import lease as lease_run
    from storage.files.fsio import FileSystem

    chosen = _options(
        metadata_dir,
        topic_id,
        single_copy,
        broker_is_stopped,
        wait_ms,
        now,
        producer_expiry_ms,
    )
    answer = lease_run.expire(log_dir, chosen, FileSystem())
    return _print("expired", lease_run.ExpireRow._fields, answer, output)


def _options(
    metadata_dir: str | None,
    topic_id: str | None,
    single_copy: bool,
    broker_is_stopped: bool,
    wait_ms: int,
    now: str | None,
    producer_expiry_ms: int | None,
) -> IdOptions:
    from eoctl.clients.coordinators.producer_id_topic import IdOptions

    chosen = IdOptions(
        metadata_dir=metadata_dir,
        topic_id=topic_id,
        single_copy=single_copy,
        broker_is_stopped=broker_is_stopped,
        wait_ms=wait_ms,
        now=now,
    )
    if producer_expiry_ms is not None:
        chosen = chosen._replace(expiration_ms=producer_expiry_ms)
    return chosen


def _print(kind: str, columns: Sequence[str], answer: LeaseAnswer, output: OutputFormat) -> int:
    from eoctl.output import Report, emit

    emit(Report(kind=kind, columns=tuple(columns), rows=answer.rows, notes=answer.notes), output)
    return answer.status


SUBCOMMANDS = {
    "acquire": acquire,
    "renew": renew,
    "release": release,
    "list": list_leases,
    "expire": expire,
}
