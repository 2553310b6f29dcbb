"""`eoctl init`: a new log dir that a broker starts on and all commands write to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.partitions.target import require_legal
from eoctl.clock import wall_ms
from eoctl.commands.shared.changes import ChangeCommand, PlanAnswer, Planned
from eoctl.output import OutputFormat, Report, emit
from eoctl.parameters import argument, option
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.checks.context.broker_version import (
    CHECKED,
    DYNAMIC_VOTERS,
    BrokerVersion,
    is_before,
    parse_broker_version,
)
from recovery.new_log_dir.adopted_topics import INTERNAL_TOPICS, MAX_PARTITIONS
from recovery.new_log_dir.records import (
    NewLogDir,
    NodeIdentity,
    TopicStart,
    Voter,
    beginning_steps,
    require_begins,
    require_free,
)
from storage.counts import counted
from storage.dirs.topic_settings import require_topic_setting
from storage.errors import FormatError, RefusedError, UsageError
from storage.file_names import METADATA_TOPIC
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS
from storage.formats.partition_metadata import format_uuid, new_topic_id, parse_uuid
from storage.limits import INT32_MAX, UINT16_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eoctl.commands.shared.changes import Done


@with_change()
def command(
    path: Annotated[
        str | None,
        argument(metavar="LOG-DIR", help="An empty directory, or one that is made."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        option(metavar="NAME:N", help="A topic with N partitions, or one. Repeatable."),
    ] = None,
    config: Annotated[
        list[str] | None,
        option(metavar="TOPIC:KEY=VALUE", help="A setting of a topic. Repeatable."),
    ] = None,
    node_id: Annotated[
        int, option(min=0, max=INT32_MAX, metavar="N", help="node.id of the broker.")
    ] = 1,
    cluster_id: options.ClusterId = None,
    directory_id: options.DirectoryId = None,
    broker_version: Annotated[
        str | None,
        option(metavar="X.Y", help="The release that will start there, from 3.3 on."),
    ] = None,
    standalone: options.Standalone = None,
    no_internal_topics: Annotated[
        bool,
        option(
            "--no-internal-topics",
            help="Without the topics of groups, transactions and leased producer ids.",
        ),
    ] = False,
    ids: Annotated[
        bool, option("--ids", help="Only print new ids: of a topic, a cluster, a log dir.")
    ] = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Make a log dir from nothing: its identity, topics, an empty directory for each partition.

    produce, copy, txn run and lease-pid write there without further options, and a broker that
    starts there serves it.
    """
    from eoctl.commands.shared.changes import run_change

    if ids:
        if path is not None:
            raise UsageError("--ids only prints ids: without LOG-DIR")
        return show_ids(output)
    if path is None:
        raise UsageError("no LOG-DIR given", next_step="eoctl init LOG-DIR --topic orders:12")
    wanted = InitOptions(
        topics=tuple(topic or ()),
        node_id=node_id,
        cluster_id=cluster_id,
        directory_id=directory_id,
        configs=tuple(config or ()),
        broker_version=broker_version,
        standalone=standalone,
        has_internal_topics=not no_internal_topics,
    )
    return run_change(init_command(path, wanted, is_kept=change.is_kept), change, output)


# -- from the options of `init` to a plan


LISTENER = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>\d{1,5})"
)
CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class InitOptions(NamedTuple):
    """The command line options."""

    topics: tuple[str, ...] = ()
    node_id: int = 1
    cluster_id: str | None = None
    directory_id: str | None = None
    configs: tuple[str, ...] = ()
    broker_version: str | None = None
    standalone: str | None = None
    has_internal_topics: bool = True


class TopicRow(NamedTuple):
    """A topic of the new log dir."""

    topic: str
    partitions_count: int
    topic_id: str | None  # None: generated when the log dir is made
    settings: str
    applied: bool


def show_ids(output: OutputFormat) -> int:
    """Print new ids: for a topic, a cluster, a log dir."""
    ids = {"topic_id": new_topic_id(), "cluster_id": new_topic_id(), "directory_id": _fresh_id()}
    emit(Report("ids", tuple(ids), [tuple(ids.values())]), output)
    return 0


def _fresh_id() -> str:
    while True:
        found = new_topic_id()
        if int.from_bytes(parse_uuid(found), "big") >= RESERVED_DIRECTORY_IDS:
            return found


def init_command(path: str, options: InitOptions, *, is_kept: bool) -> ChangeCommand:
    """Return the command as `run_change` needs it. `is_kept`: the plan is applied or saved."""
    nothing = Planned(show=lambda _done, _output: None, nothing="it is a log dir already")
    return ChangeCommand(
        name="init",
        selected=list,
        arguments=lambda: [_arguments_of(path, options)],
        plan=lambda: _planned(path, options, is_kept=is_kept),
        if_done=nothing,
        begins=absolute_path(path),
        shows_steps=False,
    )


def _arguments_of(path: str, options: InitOptions) -> dict[str, Any]:
    return {
        "log_dir": absolute_path(path),
        **{
            name: list(each) if isinstance(each, tuple) else each
            for name, each in options._asdict().items()
        },
    }


def _planned(path: str, options: InitOptions, *, is_kept: bool) -> Planned:
    beginning = plan_beginning(path, options)
    require_free(path)
    timestamp_ms = wall_ms()
    steps = beginning_steps(beginning, timestamp_ms=timestamp_ms)
    partitions = sum(len(each.leader_epochs) for each in beginning.topics)
    price = {
        "cluster_id": beginning.node.cluster_id,
        "node_id": beginning.node.node_id,
        "directory_id": format_uuid(beginning.node.directory_id),
        "broker_version": str(beginning.version),
        "topics_count": len(beginning.topics),
        "partitions_count": partitions,
    }
    plan = make_plan("init", _arguments_of(path, options), steps, price)

    def show(done: Done, output: OutputFormat) -> None:
        rows = [
            TopicRow(
                topic=each.name,
                partitions_count=len(each.leader_epochs),
                topic_id=format_uuid(each.topic_id) if is_kept else None,
                settings=",".join(f"{key}={value}" for key, value in each.settings.items()),
                applied=done.is_applied,
            )
            for each in beginning.topics
        ]
        emit(Report("topic", TopicRow._fields, rows), output)

    does = (
        f"{path} with {counted(len(beginning.topics), 'topic')}, {counted(partitions, 'partition')}"
    )
    return Planned(
        plans=(plan,),
        show=show,
        notes=[
            *node_notes(
                path,
                beginning.node,
                beginning.version,
                is_cluster_shown=is_kept or options.cluster_id is not None,
                is_drawn_again=not is_kept,
                voter=beginning.voter,
            )
        ],
        answer=lambda: PlanAnswer(
            verbs=("make", "made"), does=(does,), loses=("nothing: the log dir is new",)
        ),
    )


def node_notes(
    path: str,
    node: NodeIdentity,
    version: BrokerVersion,
    *,
    is_cluster_shown: bool,
    is_drawn_again: bool,
    voter: Voter | None = None,
) -> Iterator[str]:
    """Yield notes on the identity of a log dir.

    Args:
        path: the log dir.
        node: its owner.
        version: the release of the broker that will start there.
        is_cluster_shown: the cluster id was given, or is kept.
        is_drawn_again: the plan is only shown, and the next run generates other ids.
        voter: the voter of a dynamic quorum.
    """
    yield (
        f"{f'cluster {node.cluster_id}' if is_cluster_shown else 'a new cluster'}, for Kafka"
        f" {version}; server.properties: node.id={node.node_id}, process.roles=broker,controller,"
        f" log.dirs={absolute_path(path)}"
    )
    if voter is not None:
        yield (
            "a dynamic quorum: controller.quorum.bootstrap.servers="
            f"{f'[{voter.host}]' if ':' in voter.host else voter.host}:{voter.port} in"
            " server.properties, and no controller.quorum.voters"
        )
    if is_drawn_again:
        yield (
            "ids that were not given are drawn when it is made, and then shown; a plan that is"
            " saved (--save-plan FILE) has them, and eoctl apply writes these"
        )


def plan_beginning(path: str, options: InitOptions) -> NewLogDir:
    """Return the log dir that the options describe. UsageError, RefusedError: it is impossible."""
    version = version_of(options.broker_version)
    topics = _topics(options, version)
    node = identity_of(options.cluster_id, options.node_id, options.directory_id)
    return NewLogDir(
        log_dir=path,
        node=node,
        version=version,
        topics=tuple(topics),
        voter=voter_of(options.standalone, node, version),
    )


def voter_of(text: str | None, node: NodeIdentity, version: BrokerVersion) -> Voter | None:
    """Return the only voter that `--standalone` names, or None without the option.

    Raises:
        UsageError: the text is no listener.
        RefusedError: the release has no dynamic quorum.
    """
    if text is None:
        return None
    matched = LISTENER.fullmatch(text)
    if matched is None or not 0 < int(matched["port"]) <= UINT16_MAX:
        raise UsageError(
            f"--standalone {text}: no listener of a controller",
            next_step="as in its advertised.listeners: CONTROLLER://127.0.0.1:9093",
        )
    if is_before(version, DYNAMIC_VOTERS):
        raise RefusedError(
            f"Kafka {version} has no dynamic quorum",
            next_step="--broker-version with 3.9 or later, or no --standalone",
        )
    return Voter(
        node_id=node.node_id,
        directory_id=node.directory_id,
        listener=matched["name"],
        host=matched["host"].strip("[]"),
        port=int(matched["port"]),
    )


def version_of(option: str | None) -> BrokerVersion:
    """Return the release that will start there, CHECKED without an option."""
    version = CHECKED.line if option is None else parse_broker_version(option)
    require_begins(version)
    return version


def identity_of(cluster_id: str | None, node_id: int, directory_id: str | None) -> NodeIdentity:
    """Return the owner of the log dir, with new ids for those not given.

    Raises:
        UsageError: an id is not valid.
    """
    if cluster_id is not None and not CLUSTER_ID.fullmatch(cluster_id):
        raise UsageError(
            f"--cluster-id {cluster_id!r}: letters, digits, _ and -, mostly 22 of them",
            next_step="eoctl init --ids   # shows new ones",
        )
    if directory_id is None:
        directory_id = _fresh_id()
    try:
        parsed = parse_uuid(directory_id)
    except FormatError as exc:
        raise UsageError(f"--directory-id: {exc.message}: {directory_id}") from exc
    if int.from_bytes(parsed, "big") < RESERVED_DIRECTORY_IDS:
        raise UsageError(f"--directory-id {directory_id}: is one that Kafka has reserved")
    return NodeIdentity(cluster_id or new_topic_id(), node_id, parsed)


def _topics(options: InitOptions, version: BrokerVersion) -> list[TopicStart]:
    counts = _counts(options.topics)
    internal = INTERNAL_TOPICS if options.has_internal_topics else {}
    for name, (count, _) in internal.items():
        counts.setdefault(name, count)
    total = sum(counts.values())
    if total > MAX_PARTITIONS:
        raise UsageError(f"{total} partitions: at most {MAX_PARTITIONS} in one log dir")
    settings = _settings(options.configs, counts, version)
    return [
        TopicStart(
            name=name,
            topic_id=parse_uuid(new_topic_id()),
            leader_epochs=dict.fromkeys(range(count), 0),
            settings={**INTERNAL_TOPICS.get(name, (0, {}))[1], **settings.get(name, {})},
        )
        for name, count in counts.items()
    ]


def _counts(topics: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for text in topics:
        name, has_count, number = text.partition(":")
        require_legal(name)
        if name == METADATA_TOPIC:
            raise UsageError(f"--topic {text}: the controller makes {METADATA_TOPIC} itself")
        if name in counts:
            raise UsageError(f"--topic {name}: is given twice")
        is_number = number.isdecimal() and number.isascii() and 1 <= int(number) <= INT32_MAX
        if has_count and not is_number:
            raise UsageError(
                f"--topic {text}: {number!r} is no number of partitions",
                next_step=f"--topic {name}:12, or --topic {name} for one",
            )
        counts[name] = int(number) if has_count else 1
    _require_apart(counts)
    return counts


def _require_apart(names: Mapping[str, int]) -> None:
    """Refuse names that only differ in . and _, which are equal in metrics (Topic.hasCollision)."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.replace(".", "_"), name)
        if other != name:
            raise UsageError(
                f"--topic {name}: collides with {other}, as . and _ are one in metrics"
            )


def _settings(
    configs: Sequence[str], counts: Mapping[str, int], version: BrokerVersion
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for text in configs:
        topic, has_topic, rest = text.partition(":")
        key, has_value, value = rest.partition("=")
        if not has_topic or not has_value:
            raise UsageError(
                f"--config {text}: TOPIC:KEY=VALUE is needed",
                next_step="such as --config orders:retention.ms=-1",
            )
        if topic not in counts:
            raise UsageError(
                f"--config {text}: {topic} is none of the topics",
                next_step=f"--topic {topic}" if topic else "name a topic before the colon",
            )
        require_topic_setting(key, value, version)
        found.setdefault(topic, {})[key] = value
    return found
