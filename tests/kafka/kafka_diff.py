"""What a release of Kafka has that our tables do not, or has otherwise: so a new one is noticed.

    python -m tests.kafka.kafka_diff 4.5.0          # or: make kafka-diff RELEASE=4.5.0

It fetches the jars of the release through Maven and compares the JSON schemas in them with our
schemas, and what its classes say (`KafkaFacts.java`, from 4.0 on): feature levels, settings of topics,
record types, names of states. Prints the differences by our file; exit status 1 if there are any.
What only we have is a difference, too, unless the release is older than what we know.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recovery.checks.context.broker_version import (
    FEATURES,
    METADATA_VERSION,
    NEWEST,
    BrokerVersion,
    highest,
)
from storage.dirs.topic_settings import SETTINGS, SETTINGS_SINCE
from storage.formats import (
    cluster_metadata,
    consumer_offsets,
    control_record,
    remote_log_metadata,
    share_group_state,
    transaction_state,
)
from storage.formats.message import NEVER, Field, MessageSchema
from tests.kafka import jars
from tests.kafka.capture.releases import fetch
from tests.kafka.protocol_messages import COMMENT, _fields, _span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Where each kind of fact stands in our sources.
METADATA = "storage/formats/cluster_metadata.py"
GROUPS = "storage/formats/consumer_offsets.py"
SHARES = "storage/formats/share_group_state.py"
TRANSACTIONS = "storage/formats/transaction_state.py"
REMOTE = "storage/formats/remote_log_metadata.py"
CONTROL = "storage/formats/control_record.py"
SETTINGS_FILE = "storage/dirs/topic_settings.py"
RELEASES_FILE = "recovery/checks/context/broker_version.py"

# Known, and right as it is: types that other releases have.
ACCEPTED = frozenset(
    {
        f"{GROUPS}: ShareGroupPartitionMetadataKey: not there",
        f"{GROUPS}: ShareGroupPartitionMetadataValue: not there",
        f"{GROUPS}: StreamsGroupPartitionMetadataKey: not there",
        f"{GROUPS}: StreamsGroupPartitionMetadataValue: not there",
        f"{GROUPS}: StreamsGroupTargetAssignmentResolvedTopicIdsKey: not there",
        f"{GROUPS}: StreamsGroupTargetAssignmentResolvedTopicIdsValue: not there",
        # Told by control records, not by a feature level.
        f"{RELEASES_FILE}: kraft.version: level 1 is not known",
    }
)
# For Kafka's own tests.
TEST_FEATURES = ("test.", "unit.test.")
# Not on disk, or with a layout of ours that is no schema: their fields, in their order.
OWN_LAYOUTS = {
    "AbortedTxn": ["ProducerId", "FirstOffset", "LastOffset", "LastStableOffset"],
    "ControlRecordTypeSchema": ["Type"],
    "DefaultPrincipalData": ["Type", "Name", "TokenAuthenticated"],
    "EndTxnMarker": ["CoordinatorEpoch"],
    "ProducerSnapshot": ["Crc", "ProducerEntries"],
    "QuorumStateData": [
        "ClusterId", "LeaderId", "LeaderEpoch", "VotedId", "VotedDirectoryId", "AppliedOffset",
        "CurrentVoters",
    ],
}  # fmt: skip


def our_schemas() -> Iterator[tuple[str, MessageSchema]]:
    """Each schema of ours that Kafka has a file for, with our file."""
    for schema in cluster_metadata.RECORDS.values():
        yield METADATA, schema
    for path, types in (
        (GROUPS, consumer_offsets.RECORD_TYPES),
        (SHARES, share_group_state.RECORD_TYPES),
        (TRANSACTIONS, transaction_state.RECORD_TYPES),
    ):
        for each in types.values():
            yield path, each.key
            yield path, each.value
    for schema in remote_log_metadata.RECORDS.values():
        yield REMOTE, schema
    for schema in control_record.MESSAGES.values():
        yield CONTROL, schema
    yield GROUPS, consumer_offsets.SUBSCRIPTION
    yield GROUPS, consumer_offsets.ASSIGNMENT


def their_schemas(libs: Path) -> dict[str, dict[str, Any]]:
    """The schemas of what lies on disk, by name."""
    found = {}
    for jar in sorted(set(libs.glob("kafka*.jar")) - set(libs.glob("kafka-streams-*.jar"))):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if ("message/" not in name and "metadata/" not in name) or name[-5:] != ".json":
                    continue
                schema = json.loads(COMMENT.sub("", archive.read(name).decode()))
                if schema["type"] not in {"request", "response", "header"}:
                    found[schema["name"]] = schema
    return found


def _ours(fields: Iterable[Field], versions: tuple[int, int]) -> list[Any]:
    found = []
    for each in fields:
        first, last = max(each.since, versions[0]), min(each.until, versions[1])
        inner = _ours(each.fields, (first, last))
        found.append([each.name, each.type, first, last, each.tag, inner])
    return found


def _theirs(schema: Mapping[str, Any], versions: tuple[int, int]) -> list[Any]:
    structs = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
    return _without_defaults(_fields(schema["fields"], structs, versions))


def _without_defaults(fields: list[Any]) -> list[Any]:
    return [
        [name, type_name, first, last, tag, _without_defaults(inner)]
        for name, type_name, first, last, tag, inner, *_ in fields
    ]


def schema_differences(libs: Path, *, is_older: bool = False) -> Iterator[str]:
    """Compare names, versions, and the fields with their types and tags.

    `is_older`: what a later release has added is no difference.
    """
    theirs = their_schemas(libs)
    seen = set()
    for path, schema in our_schemas():
        seen.add(schema.name)
        other = theirs.get(schema.name)
        if other is None:
            yield f"{path}: {schema.name}: not there"
            continue
        versions = _span(other["validVersions"])
        if path in {METADATA, REMOTE} and cluster_key(path, schema) != other["apiKey"]:
            yield f"{path}: {schema.name}: its id is {other['apiKey']}"
        if is_older and versions[1] < schema.highest_version:
            continue
        if versions[1] != schema.highest_version and not schema.name.endswith("Key"):
            yield f"{path}: {schema.name}: versions up to {versions[1]}, not {schema.highest_version}"
            continue
        flexible = _span(other["flexibleVersions"])
        since = flexible[0] if flexible[1] >= 0 else NEVER
        if since != schema.flexible_since:
            yield f"{path}: {schema.name}: flexible from version {since} on"
        span = (0, 0) if schema.name.endswith("Key") else (0, versions[1])
        if schema.name.endswith("Key"):
            versions = (0, 0)
        yield from _field_differences(path, schema, other, span, is_older=is_older)
    for name in sorted(theirs.keys() - seen):
        if name in OWN_LAYOUTS:
            fields = [each["name"] for each in theirs[name]["fields"]]
            if fields != OWN_LAYOUTS[name]:
                yield f"{_home(theirs[name])}: {name}: fields {fields}, not {OWN_LAYOUTS[name]}"
        else:
            yield f"{_home(theirs[name])}: {name}: is not known ({theirs[name].get('apiKey', '')})"


def _field_differences(
    path: str,
    schema: MessageSchema,
    other: Mapping[str, Any],
    span: tuple[int, int],
    *,
    is_older: bool,
) -> Iterator[str]:
    ours = {each[0]: each for each in _ours(schema.fields, span)}
    theirs = {each[0]: each for each in _theirs(other, span)}
    for name in [*theirs, *(each for each in ours if each not in theirs)]:
        mine, yours = ours.get(name), theirs.get(name)
        if mine is None:
            yield f"{path}: {schema.name}: field {name} is not known: {yours}"
        elif yours is None:
            yield f"{path}: {schema.name}: field {name} is not there"
        elif mine != yours and not (is_older and _has_grown(mine, yours)):
            yield f"{path}: {schema.name}: field {name} is {yours}, not {mine}"


def _has_grown(mine: list[Any], yours: list[Any]) -> bool:
    """Whether ours only has more tagged fields inside."""
    known = {each[0]: each for each in mine[5]}
    added = [each for each in mine[5] if each[0] not in {one[0] for one in yours[5]}]
    same = all(
        one[0] in known and (known[one[0]] == one or _has_grown(known[one[0]], one))
        for one in yours[5]
    )
    return mine[:5] == yours[:5] and same and all(each[4] >= 0 for each in added)


def cluster_key(path: str, schema: MessageSchema) -> int:
    """The id that we have for a record with a frame."""
    table = cluster_metadata.RECORDS if path == METADATA else remote_log_metadata.RECORDS
    return next(key for key, each in table.items() if each is schema)


def _home(schema: Mapping[str, Any]) -> str:
    """Where a schema of theirs would stand."""
    if schema["type"] == "metadata":
        return METADATA
    name = schema["name"]
    if schema["type"].startswith("coordinator"):
        if name.startswith("Transaction"):
            return TRANSACTIONS
        return SHARES if name.startswith(("ShareSnapshot", "ShareUpdate")) else GROUPS
    return CONTROL


def facts_of(libs: Path) -> list[tuple[str, str, str]]:
    """What the classes of a release say: kind, name, value."""
    command = [
        jars.tool("java"),
        "-cp",
        f"{libs}/*",
        str(Path(__file__).with_name("KafkaFacts.java")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    split = (each.split(" ", 2) for each in done.stdout.splitlines())
    return [(kind, name, value) for kind, name, value in split]


def fact_differences(facts: list[tuple[str, str, str]], version: BrokerVersion) -> Iterator[str]:
    """Compare feature levels, settings of topics, and the names of types and states."""
    tables: dict[str, tuple[str, dict[str, int]]] = {
        "status": (TRANSACTIONS, {e.name: int(e) for e in transaction_state.TransactionStatus}),
        "delivery-state": (SHARES, {e.name: int(e) for e in share_group_state.DeliveryState}),
        "control-record": (CONTROL, {e.name: int(e) for e in control_record.ControlRecordType}),
        "metadata-record": (METADATA, {n: k for k, n in cluster_metadata.RECORD_NAMES.items()}),
    }
    tops: dict[str, int] = {}
    for kind, name, value in facts:
        if kind == "level":
            tops[name] = max(int(value), tops.get(name, 0))
        elif kind == "topic-setting":
            known = SETTINGS.get(name)
            if known is None:
                yield f"{SETTINGS_FILE}: {name} is not known, default {value}"
            elif known.default != value:
                yield f"{SETTINGS_FILE}: {name}: default {value}, not {known.default}"
        elif kind in tables and name != "UNKNOWN":
            path, table = tables[kind]
            if table.get(name) != int(value):
                yield f"{path}: {kind} {name} {value} is not known"
        elif kind in {"group-record", "share-record"}:
            types = consumer_offsets if kind == "group-record" else share_group_state
            if int(value) not in types.RECORD_TYPES:
                yield f"{GROUPS if kind == 'group-record' else SHARES}: {kind} {name} {value}"
    for name, top in tops.items():
        if name.startswith(TEST_FEATURES):
            continue
        if name not in FEATURES and top:
            yield f"{RELEASES_FILE}: {name}: level {top} is not known"
        elif top != (highest(FEATURES.get(name, ()), version) or 0):
            yield f"{RELEASES_FILE}: {name}: level {top} is the highest in {version}"
    there = {name for kind, name, _ in facts if kind == "topic-setting"}
    for name in SETTINGS if there else ():
        if name not in there and version >= SETTINGS_SINCE.get(name, (0,)):
            yield f"{SETTINGS_FILE}: {name}: not there"
    if METADATA_VERSION not in tops:
        yield f"{RELEASES_FILE}: {METADATA_VERSION}: its levels cannot be asked for"


def differences(libs: Path, release: str) -> list[str]:
    """All that a release has otherwise, by our file, without what is accepted."""
    major, minor = map(int, release.split(".")[:2])
    version = BrokerVersion(major, minor)
    is_older = version < NEWEST
    found = [
        *schema_differences(libs, is_older=is_older),
        *fact_differences(facts_of(libs), version),
    ]
    if is_older:
        # What came later is in our tables, and not in that release.
        found = [each for each in found if not each.endswith(("not there", "is not there"))]
    return sorted({*found} - ACCEPTED)


def libs_for(release: str) -> Path:
    """The jars of a release; they are fetched if they are not there."""
    libs = jars.REPOSITORY_DIR / f".cache/kafka-libs-{release}"
    if any(jars.KAFKA_LIBS.glob(f"kafka_2.13-{release}.jar")):
        return jars.KAFKA_LIBS
    if not libs.is_dir():
        begun = libs.with_name(f"{libs.name}.new")
        fetch(
            [f"org.apache.kafka:{each}:{release}" for each in ("kafka_2.13", "kafka-tools")], begun
        )
        begun.rename(libs)
    return libs


def main() -> int:
    """Print the differences of the releases that are named, by file."""
    status = 0
    for release in sys.argv[1:]:
        found = differences(libs_for(release), release)
        print(f"Kafka {release}: {len(found)} differences")
        before = ""
        for each in found:
            path, _, what = each.partition(": ")
            if path != before:
                print(f"  {path}")
            before = path
            print(f"    {what}")
        status = status or bool(found)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
