"""What a real broker and `eoctl serve` are both asked: every API that both answer, in each version.

A body holds the fields of all versions; each version takes those that it has.
"""

from __future__ import annotations

import time
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.serve.protocol.messages import apis
from tests.drawn import drawn
from tests.wire import batches_in, fetch, list_offset, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.wire import Wire

Body = dict[str, Any]

NO_TOPIC, BAD_TOPIC, NO_ID = "no-such-topic", "not a name!", b"\7" * 16
LOADING = 14  # COORDINATOR_LOAD_IN_PROGRESS
NO_GROUP = "no-such-group"
CLIENT = {"clientSoftwareName": "wire", "clientSoftwareVersion": "1"}
ALL_BYTES = 100_000_000
TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = 2, 4, 8, 16, 32
FETCHED_SHARE = 150  # batches of all partitions, in `make test`


class Question(NamedTuple):
    """A request."""

    api: str
    version: int
    body: Body


class Batch(NamedTuple):
    """A batch, as the broker itself gave it."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class Log(NamedTuple):
    """A partition."""

    topic: str
    number: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    batches: tuple[Batch, ...]


class Known(NamedTuple):
    """What the broker says there is to be asked about."""

    ids: dict[str, bytes]
    logs: tuple[Log, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    versions: dict[int, int]  # the last one of each API that it offers

    def numbers(self) -> dict[str, list[int]]:
        """The partitions of each topic."""
        found: dict[str, list[int]] = {}
        for each in self.logs:
            found.setdefault(each.topic, []).append(each.number)
        return found


def learn(wire: Wire) -> Known:
    """Ask a broker."""
    topics = wire.ask("Metadata", 12, {"topics": None})["topics"]
    logs = [
        _log(wire, topic["name"], each["partitionIndex"], each["leaderEpoch"])
        for topic in sorted(topics, key=lambda each: str(each["name"]))
        for each in sorted(topic["partitions"], key=lambda each: int(each["partitionIndex"]))
    ]
    while (listed := wire.ask("ListGroups", 4, {}))["errorCode"] == LOADING:
        time.sleep(0.1)
    groups = listed["groups"]
    transactions = wire.ask("ListTransactions", 0, {})["transactionStates"]
    offered = wire.ask("ApiVersions", 0)["apiKeys"]
    return Known(
        ids={each["name"]: each["topicId"] for each in topics},
        logs=tuple(logs),
        groups=tuple(sorted(each["groupId"] for each in groups)),
        transactional_ids=tuple(sorted(each["transactionalId"] for each in transactions)),
        versions={each["apiKey"]: each["maxVersion"] for each in offered},
    )


def _log(wire: Wire, topic: str, number: int, leader_epoch: int) -> Log:
    offset = start_offset = list_offset(wire, topic, number, -2)["offset"]
    batches: list[Batch] = []
    while True:
        answer = fetch(wire, topic, number, offset, max_bytes=ALL_BYTES)
        assert answer["errorCode"] == 0
        headers = [each.header for each in batches_in(whole(answer["records"] or b""))]
        if not headers:
            break
        batches += [
            Batch(each.base_offset, each.last_offset, each.batch_bytes, each.max_timestamp_ms)
            for each in headers
        ]
        offset = headers[-1].last_offset + 1
    return Log(topic, number, leader_epoch, start_offset, offset, tuple(batches))


def questions(known: Known) -> Iterator[Question]:
    """Everything."""
    for api, bodies in (
        ("ApiVersions", [CLIENT]),
        ("Metadata", _metadata(known)),
        ("DescribeCluster", _cluster()),
        ("FindCoordinator", _coordinators()),
        ("DescribeTopicPartitions", _topic_partitions(known)),
        ("DescribeConfigs", _configs(known)),
        ("ListConfigResources", [{"resourceTypes": each} for each in ([], [TOPICS], [BROKERS, LOGGERS], [METRICS, GROUPS], [99])]),
        ("DescribeLogDirs", [{"topics": each} for each in (None, [], [{"topic": "txn", "partitions": [0]}, {"topic": NO_TOPIC, "partitions": [3]}])]),
        ("ListGroups", _group_lists()),
        ("DescribeGroups", [_described(known, "groups")]),
        ("ConsumerGroupDescribe", [_described(known, "groupIds")]),
        ("ShareGroupDescribe", [_described(known, "groupIds")]),
        ("StreamsGroupDescribe", [_described(known, "groupIds"), {**_described(known, "groupIds"), "includeTopologyDescription": True}]),
        ("DescribeShareGroupOffsets", _share_offsets(known)),
        ("OffsetFetch", _committed(known)),
        ("DescribeProducers", _producers(known)),
        ("DescribeTransactions", [{"transactionalIds": [*known.transactional_ids, "no-such-id", ""]}]),
        ("ListTransactions", _transaction_lists()),
        ("DescribeAcls", _acls()),
        ("DescribeUserScramCredentials", [{"users": each} for each in _users()]),
        ("ListPartitionReassignments", [{"topics": None}]),
        ("DescribeClientQuotas", _quotas()),
        ("OffsetForLeaderEpoch", _epochs(known)),
        ("ListOffsets", _offsets(known)),
    ):  # fmt: skip
        for version, body in product(_versions(api, known), bodies):
            if api != "OffsetFetch" or (version >= 2 or body["topics"] is not None):
                yield Question(api, version, body)
    yield from _times(known)
    yield from _fetches(known)


def _quotas() -> Iterator[Body]:
    """Of each type, alone and together; and what nobody understands."""
    named, default, any_one, unknown = 0, 1, 2, 9
    of_a_type: list[list[Body]] = [
        [
            {"entityType": kind, "matchType": how, "match": name}
            for how, name in ((named, one), (named, "nobody"), (default, None), (any_one, None))
        ]
        for kind, one in (("user", "alice"), ("client-id", "app"), ("ip", "127.0.0.1"))
    ]
    users, clients, addresses = of_a_type
    wrong: list[Body] = [
        {"entityType": kind, "matchType": how, "match": name}
        for kind, how, name in (
            ("", named, "x"), ("group", named, "x"), ("user", named, None), ("user", default, "x"),
            ("user", any_one, "x"), ("user", unknown, "x"), ("user", unknown, None),
        )
    ]  # fmt: skip
    components = [
        [], *([each] for each in (*users, *clients, *addresses, *wrong)),
        *map(list, product(users, clients)), [users[0], users[2]], [users[2], addresses[2]],
        [clients[2], addresses[1]], [*users[:1], *clients[:1], *addresses[:1]],
    ]  # fmt: skip
    for each, is_strict in product(components, (False, True)):
        yield {"components": each, "strict": is_strict}


def _versions(name: str, known: Known) -> range:
    api = next(each for each in apis().values() if each.name == name)
    return range(api.first_version, min(api.last_version, known.versions[api.key]) + 1)


def _acls() -> Iterator[Body]:
    """One number or text of a filter at a time, and all patterns with all names."""
    any_one: Body = {
        "resourceTypeFilter": 1, "resourceNameFilter": None, "patternTypeFilter": 1,
        "principalFilter": None, "hostFilter": None, "operation": 1, "permissionType": 1,
    }  # fmt: skip
    yield any_one
    for name, values in (
        ("resourceTypeFilter", (2, 3, 4, 5, 7, 99)), ("operation", (2, 3, 4, 99)),
        ("permissionType", (2, 3, 99)), ("principalFilter", ("User:alice", "User:*", "alice", "")),
        ("hostFilter", ("*", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "2001:DB8::/32", "")),
    ):  # fmt: skip
        for value in values:
            yield {**any_one, name: value}
    names = ("plain", "plai", "plain-more", "orders-1", "orders-", "*", "")
    for pattern, text in product((1, 2, 3, 4, 99), names):
        yield {**any_one, "patternTypeFilter": pattern, "resourceNameFilter": text}
    for pattern in (2, 3, 4):
        yield {**any_one, "patternTypeFilter": pattern}


def _users() -> list[list[Body] | None]:
    alice, bob, nobody = ({"name": each} for each in ("alice", "bob", "nobody"))
    return [None, [], [alice], [nobody, bob], [alice, bob, alice], [{"name": ""}]]


def _metadata(known: Known) -> list[Body]:
    rights: Body = {
        "allowAutoTopicCreation": False,
        "includeClusterAuthorizedOperations": True,
        "includeTopicAuthorizedOperations": True,
    }
    some = next(iter(known.ids))
    names = [some, NO_TOPIC, BAD_TOPIC, "__cluster_metadata"]
    by_name = [{"name": each, "topicId": bytes(16)} for each in names]
    return [
        {"topics": [], **rights},
        {"topics": [*by_name[:1], *by_name[1:]], **rights},
        {"topics": by_name, "allowAutoTopicCreation": False},
        *({"topics": [{"name": each, "topicId": bytes(16)}]} for each in known.ids),
    ]


def _cluster() -> list[Body]:
    return [
        {"includeClusterAuthorizedOperations": wants, "endpointType": kind}
        for wants in (True, False)
        for kind in (1, 2)
    ]


def _coordinators() -> list[Body]:
    keys = ["a-group", "b", ""]
    return [
        {"key": key, "keyType": kind, "coordinatorKeys": keys} for kind in (0, 1, 2) for key in keys
    ]


def _topic_partitions(known: Known) -> list[Body]:
    some = sorted(known.ids)[len(known.ids) // 2]
    names = [{"name": each} for each in [*known.ids, NO_TOPIC, BAD_TOPIC]]
    cursor = {"topicName": some, "partitionIndex": 0}
    return [
        {"topics": topics, "responsePartitionLimit": limit, "cursor": since}
        for topics in ([], names)
        for limit in (1, 3, 2000)
        for since in (None, cursor, {**cursor, "partitionIndex": 1})
    ]


def _configs(known: Known) -> list[Body]:
    topics = [(TOPICS, name, None) for name in [*known.ids, NO_TOPIC, BAD_TOPIC, ""]]
    others = [
        (BROKERS, "1", None), (BROKERS, "", None), (BROKERS, "99", None), (BROKERS, "x", None),
        (METRICS, "m", None), *((GROUPS, each, None) for each in known.groups),
        (TOPICS, next(iter(known.ids)), ["segment.bytes", "no-such-setting"]),
    ]  # fmt: skip
    return [
        {
            "resources": [
                {"resourceType": kind, "resourceName": name, "configurationKeys": keys}
                for kind, name, keys in asked
            ],
            "includeSynonyms": wants,
        }
        for asked in (topics, others, [*others[:1], (99, "x", None)])
        for wants in (True, False)
    ]


def _group_lists() -> list[Body]:
    states = ([], ["Stable"], ["empty"], ["Dead", "Empty"], ["Nonsense"])
    kinds = ([], ["consumer"], ["Classic"], ["share"])
    return [{"statesFilter": state, "typesFilter": kind} for state in states for kind in kinds]


def _described(known: Known, field: str) -> Body:
    return {field: [*known.groups, NO_GROUP, ""], "includeAuthorizedOperations": True}


def _share_offsets(known: Known) -> list[Body]:
    """Of a few partitions: a broker takes a second for each."""
    name = "plain" if "plain" in known.ids else next(iter(known.ids))
    topics = [{"topicName": name, "partitions": [*known.numbers()[name], 77]}]
    nowhere = {"topicName": NO_TOPIC, "partitions": [0]}
    some = (known.groups[0], known.groups[-1], NO_GROUP, "")
    return [
        {"groups": [{"groupId": each, "topics": asked} for each in groups]}
        for groups, asked in (
            ((*known.groups, *some[2:]), None),
            *((some, asked) for asked in ([], [*topics, nowhere], [nowhere])),
        )
    ]


def _committed(known: Known) -> list[Body]:
    def topics(numbers: dict[str, list[int]], ids: dict[str, bytes]) -> list[Body]:
        return [
            {"name": name, "topicId": ids.get(name, NO_ID), "partitionIndexes": each}
            for name, each in numbers.items()
        ]

    every, none = topics(known.numbers(), known.ids), topics({NO_TOPIC: [0]}, {})
    return [
        {
            "groupId": group,
            "topics": asked,
            "groups": [{"groupId": group, "topics": asked}],
            "requireStable": is_stable,
        }
        for group in (*known.groups, NO_GROUP)
        for asked in (every, none, None)
        for is_stable in (False, True)
    ]


def _producers(known: Known) -> list[Body]:
    numbers = {**known.numbers(), NO_TOPIC: [0], BAD_TOPIC: [0]}
    some = next(iter(known.ids))
    return [
        {"topics": [{"name": name, "partitionIndexes": each} for name, each in numbers.items()]},
        {"topics": [{"name": some, "partitionIndexes": [7777]}]},
    ]


def _transaction_lists() -> list[Body]:
    return [
        {},
        *({"stateFilters": each} for each in (["Ongoing"], ["ongoing", "Nonsense"])),
        {"producerIdFilters": [1, 2]},
        *({"durationFilter": each} for each in (0, 10**12)),
        *({"transactionalIdPattern": each} for each in ("o.*", "t", "(", "")),
    ]


def _each(known: Known, name: str, number_name: str, asked: Body) -> list[Body]:
    """Of each partition the same."""
    return [
        {name: topic, "partitions": [{number_name: each, **asked} for each in numbers]}
        for topic, numbers in known.numbers().items()
    ]


def _epochs(known: Known) -> list[Body]:
    last = max(each.leader_epoch for each in known.logs)
    bodies = []
    for current, epoch in product((-1, 0, 1_000_000), range(-1, last + 2)):
        asked = {"currentLeaderEpoch": current, "leaderEpoch": epoch}
        bodies.append({"replicaId": -1, "topics": _each(known, "topic", "partition", asked)})
    nothing = {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}
    return [*bodies, {"replicaId": -1, "topics": [{"topic": NO_TOPIC, "partitions": [nothing]}]}]


def _offsets(known: Known) -> list[Body]:
    bodies = []
    for isolation, current in product((0, 1), (-1, 0, 1_000_000)):
        for timestamp in (*range(-1, -8, -1), 0, 10**15) if current < 0 else (-1,):
            asked = {"currentLeaderEpoch": current, "timestamp": timestamp}
            topics = _each(known, "name", "partitionIndex", asked)
            topics.append({"name": NO_TOPIC, "partitions": [{"partitionIndex": 0, **asked}]})
            bodies.append({"replicaId": -1, "isolationLevel": isolation, "topics": topics})
    return bodies


def _times(known: Known) -> Iterator[Question]:
    """Before, at and after what a batch says is its latest time."""
    times = [
        (each, batch.max_timestamp_ms + by)
        for each in known.logs
        for batch in each.batches
        for by in (-1, 0, 1)
    ]
    for (each, timestamp), isolation in product(drawn(times, FETCHED_SHARE, "times"), (0, 1)):
        asked = {"partitionIndex": each.number, "timestamp": timestamp}
        topics = [{"name": each.topic, "partitions": [asked]}]
        body = {"replicaId": -1, "isolationLevel": isolation, "topics": topics}
        yield Question("ListOffsets", 8, body)


def _fetches(known: Known) -> Iterator[Question]:
    for each, version, isolation in product(known.logs, _versions("Fetch", known), (0, 1)):
        middle = each.batches[len(each.batches) // 2].last_offset if each.batches else 0
        for offset in (each.start_offset, middle, each.end_offset):
            yield _fetch(known, each, offset, 100_000, version=version, isolation=isolation)
        for offset in (-1, each.start_offset - 1, each.end_offset + 1):
            yield _fetch(known, each, offset, 100_000, version=version, isolation=isolation)
    for each in known.logs:
        for epoch in (0, each.leader_epoch, 1_000_000):
            yield _fetch(known, each, each.start_offset, 1000, currentLeaderEpoch=epoch)
        for epoch in range(each.leader_epoch + 2):
            yield _fetch(known, each, each.end_offset, 1000, lastFetchedEpoch=epoch)
            yield _fetch(known, each, each.end_offset // 2, 1000, lastFetchedEpoch=epoch)
    places = [(each, batch) for each in known.logs for batch in each.batches]
    for (each, batch), isolation in product(drawn(places, FETCHED_SHARE, "fetches"), (0, 1)):
        size = batch.size_bytes
        for max_bytes in (1, size, size + 1, size + 200, 4 * size, 1 << 20):
            offset = batch.base_offset
            yield _fetch(known, each, offset, max_bytes, version=12, isolation=isolation)
            yield _fetch(known, each, batch.last_offset, max_bytes, isolation=isolation)
    nowhere = Log(NO_TOPIC, 0, 0, 0, 0, ())
    for version in _versions("Fetch", known):
        yield _fetch(known, nowhere, 0, 1000, version=version)
    yield from _fetches_of_all(known)


def _fetch(
    known: Known,
    log: Log,
    offset: int,
    max_bytes: int,
    *,
    version: int = 17,
    isolation: int = 0,
    **more: int,
) -> Question:
    asked = {"partition": log.number, "fetchOffset": offset, "partitionMaxBytes": max_bytes, **more}
    topic_id = known.ids.get(log.topic, NO_ID)
    return Question("Fetch", version, {
        "isolationLevel": isolation,
        "topics": [{"topic": log.topic, "topicId": topic_id, "partitions": [asked]}],
    })  # fmt: skip


def _fetches_of_all(known: Known) -> Iterator[Question]:
    """Limits of all partitions together, and of each."""
    limits = ((1 << 20, ALL_BYTES), (1, ALL_BYTES), (300, ALL_BYTES), (1000, 5000), (1000, 20_000))
    for isolation, (each_bytes, all_bytes) in product((0, 1), (*limits, (1 << 20, 1))):
        topics = [
            {"topic": name, "topicId": known.ids[name], "partitions": [
                {"partition": number, "fetchOffset": 0, "partitionMaxBytes": each_bytes}
                for number in numbers
            ]}
            for name, numbers in known.numbers().items()
        ]  # fmt: skip
        body = {"isolationLevel": isolation, "maxBytes": all_bytes, "topics": topics}
        yield Question("Fetch", 17, body)
