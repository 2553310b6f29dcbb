"""Compares answers of `eoctl serve` with those of a real broker over the same directory.

Every field must be equal, but for clocks, addresses, the order of what has none, and what `BY_DESIGN`
lists: what no directory tells, or what nobody may do here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.serve.answers.refusals import UNOFFERED
from storage.dirs.topic_settings import SETTINGS_SINCE
from tests.kafka import jars
from tests.wire import batches_in, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.serve_questions import Question
    from tests.wire import Wire

# Fields by (API, name); no API: of any.
BY_DESIGN = {
    ("ApiVersions", "supportedFeatures"): "what the dead program could do is in no file",
    ("", "topicAuthorizedOperations"): "nobody may write here",
    ("", "clusterAuthorizedOperations"): "nobody may write here",
    ("", "authorizedOperations"): "nobody may write here",
    ("", "errorMessage"): "words for people; compared is whether there are any",
}
CLOCKS_AND_ADDRESSES = {
    "host", "port",
    "usableBytes",  # of a disk that others write to
    "finalizedFeaturesEpoch",  # an offset of the metadata, which a controller appends to by itself
}  # fmt: skip
# Offered by a broker only: those of members of newer kinds of groups, of telemetry, of other brokers.
ONLY_A_BROKERS = {*UNOFFERED, 83, 84, 85, 86, 87} - {71, 72}
NEWEST = "4.4"  # serve answers as a broker of this release
IN_ORDER = {"abortedTransactions", "synonyms", "replicaNodes", "isrNodes", "partitionIndexes"}
CLEANED = {"compacted"}  # topics of which records were deleted, those of aborted transactions too
TRIMMED = {"trimmed"}  # topics of which the beginning was deleted
DAY_MS = 86_400_000
STATIC, DEFAULT = 4, 5
DYNAMIC = {1, 2, 3, 7, 8}
TOPICS, BROKERS, METRICS, GROUPS = 2, 4, 16, 32
FIRST_NEW_API = 93  # of 4.4
NEW_SETTINGS = {name for name, since in SETTINGS_SINCE.items() if since >= (4, 4)}


class Difference(NamedTuple):
    """One field."""

    api: str
    version: int
    field: str
    theirs: Any
    ours: Any
    body: dict[str, Any]


def ask(wire: Wire, question: Question) -> dict[str, Any]:
    """Ask one of the two."""
    return wire.ask(question.api, question.version, question.body)


def differences(
    question: Question, theirs: dict[str, Any], ours: dict[str, Any]
) -> list[Difference]:
    """Compare two answers."""
    if question.api == "ApiVersions":
        theirs = {**theirs, "apiKeys": [
            each for each in theirs["apiKeys"] if each["apiKey"] not in ONLY_A_BROKERS
        ]}  # fmt: skip
        if jars.release() != NEWEST:
            ours = _as_older(ours, {each["apiKey"]: each for each in theirs["apiKeys"]})
    elif question.api == "DescribeConfigs":
        found = [_in_the_files(each) for each in _by_resource(theirs)]
        of_ours = [_without_defaults(each) for each in _by_resource(ours)]
        pairs = zip(of_ours, found, strict=True)
        theirs = {**theirs, "results": found}
        ours = {**ours, "results": [_of_properties(each, other) for each, other in pairs]}
    elif question.api == "Fetch":
        theirs = _with_whole_batches(theirs)
        if any(each["topic"] in CLEANED for each in question.body["topics"]):
            theirs, ours = _with_visible(theirs), _with_visible(ours)
    elif question.api == "DescribeProducers":
        theirs, ours = _without_expired(theirs), _without_expired(ours)
    elif question.api == "ListOffsets":
        theirs, ours = _without_trimmed(question, theirs), _without_trimmed(question, ours)
    compared = _compare(question.api, "", _sorted(theirs), _sorted(ours))
    return [
        Difference(question.api, question.version, field, one, other, question.body)
        for field, one, other in compared
    ]


def _by_resource(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(answer["results"], key=lambda each: (each["resourceType"], each["resourceName"]))


def _as_older(ours: dict[str, Any], theirs: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Take out the APIs, and versions, that a broker of an older release does not have."""
    return {**ours, "apiKeys": [
        {**each, "maxVersion": min(each["maxVersion"], theirs[each["apiKey"]]["maxVersion"])}
        for each in ours["apiKeys"]
        if each["apiKey"] in theirs or each["apiKey"] < FIRST_NEW_API
    ]}  # fmt: skip


def _in_the_files(result: dict[str, Any]) -> dict[str, Any]:
    """Take out what stands in Kafka's program only: defaults of brokers and metrics."""
    kind = result["resourceType"]
    configs = []
    for found in result["configs"]:
        if kind not in (TOPICS, GROUPS) and found["configSource"] not in DYNAMIC:
            continue
        each = {**found, "documentation": None}
        if kind == METRICS and "configType" in each:
            each["configType"] = 0
        configs.append(each)
    return _without_defaults({**result, "configs": configs})


def _without_defaults(result: dict[str, Any]) -> dict[str, Any]:
    """Take out what a broker of an older release does not have: defaults of groups, new settings."""
    kind = result["resourceType"]
    if jars.release() == NEWEST or kind not in (TOPICS, GROUPS):
        return result
    if kind == TOPICS:
        configs = [each for each in result["configs"] if each["name"] not in NEW_SETTINGS]
        return {**result, "configs": configs}
    configs = [
        {
            **{name: value for name, value in each.items() if name != "configType"},
            "synonyms": [one for one in each["synonyms"] if one["source"] != DEFAULT],
        }
        for each in result["configs"]
        if each["configSource"] in DYNAMIC
    ]
    return {**result, "configs": configs}


def _of_properties(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Take over what a server.properties says: it is not known to us."""
    static = {
        each["name"]: each
        for each in theirs["configs"]
        if any(other["source"] == STATIC for other in each["synonyms"])
        or each["configSource"] == STATIC
    }
    configs = []
    for each in ours["configs"]:
        their = static.get(each["name"])
        if their is not None:
            names = ["synonyms"]
            if their["configSource"] == STATIC:
                assert each["configSource"] == DEFAULT
                names += ["value", "configSource"]
            configs.append({**each, **{name: their[name] for name in names}})
        else:
            configs.append(each)
    return {**ours, "configs": configs}


def _without_expired(answer: dict[str, Any]) -> dict[str, Any]:
    """A broker forgets producers by its clock; those of a dead one are told for ever."""
    producers = [
        each["lastTimestamp"]
        for topic in answer["topics"]
        for partition in topic["partitions"]
        for each in partition["activeProducers"]
    ]
    oldest_ms = max(producers, default=0) - DAY_MS
    topics = [
        {**topic, "partitions": [
            {**each, "activeProducers": [
                producer for producer in each["activeProducers"]
                if producer["lastTimestamp"] >= oldest_ms
            ]}
            for each in topic["partitions"]
        ]}
        for topic in answer["topics"]
    ]  # fmt: skip
    return {**answer, "topics": topics}


def _without_trimmed(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    """A broker looks for a time in one segment: it finds none if that record was deleted since.

    We look on, so that nothing is left out by whoever begins there.
    """
    (timestamp,) = {each["timestamp"] for topic in question.body["topics"] for each in topic["partitions"]}  # fmt: skip
    left_out = CLEANED | TRIMMED if timestamp >= 0 else set()
    topics = [each for each in answer["topics"] if each["name"] not in left_out]
    return {**answer, "topics": topics}


def _changed(answer: dict[str, Any], change: Any) -> dict[str, Any]:
    topics = [
        {**topic, "partitions": [change(each) for each in topic["partitions"]]}
        for topic in answer["responses"]
    ]
    return {**answer, "responses": topics}


def _with_whole_batches(answer: dict[str, Any]) -> dict[str, Any]:
    """A broker cuts at the limit, in the middle of a batch, which clients pass over."""
    return _changed(answer, lambda each: {**each, "records": whole(each["records"] or b"")})


def _with_visible(answer: dict[str, Any]) -> dict[str, Any]:
    """In the place of aborted transactions the batches that a consumer shows.

    The index of a broker still lists those of which a cleaner has left nothing.
    """

    def change(each: dict[str, Any]) -> dict[str, Any]:
        aborted = each["abortedTransactions"]
        shown = None if aborted is None else visible(each["records"] or b"", aborted)
        return {**each, "abortedTransactions": shown}

    return _changed(answer, change)


def visible(data: bytes, aborted: list[dict[str, Any]]) -> list[int]:
    """The base offsets of the batches that a read_committed consumer shows."""
    left = sorted((each["firstOffset"], each["producerId"]) for each in aborted)
    hidden: set[int] = set()
    found = []
    for each in batches_in(data):
        header = each.header
        while left and left[0][0] <= header.last_offset:
            hidden.add(left.pop(0)[1])
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in hidden:
            found.append(header.base_offset)
    return found


def _key(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    plain = {name: each for name, each in value.items() if not isinstance(each, (list, dict))}
    if not plain:
        return repr(value)
    left_out = CLOCKS_AND_ADDRESSES | {name for _, name in BY_DESIGN}
    return repr([each for each in plain.items() if each[0] not in left_out])


def _sorted(value: Any, name: str = "") -> Any:
    """With lists in an order of their own, unless theirs means something."""
    if isinstance(value, dict):
        return {key: _sorted(each, key) for key, each in value.items()}
    if isinstance(value, list):
        found = [_sorted(each) for each in value]
        return found if name in IN_ORDER else sorted(found, key=_key)
    return value


def _compare(api: str, field: str, theirs: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    name = field.rpartition(".")[2].removesuffix("[]")
    if name in CLOCKS_AND_ADDRESSES:
        return
    if (api, name) in BY_DESIGN or ("", name) in BY_DESIGN:
        if name == "errorMessage" and bool(theirs) != bool(ours) and theirs != "NONE":
            yield field, theirs, ours
        return
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            yield from _compare(api, f"{field}.{key}", theirs.get(key), ours.get(key))
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for one, other in zip(theirs, ours, strict=True):
            yield from _compare(api, f"{field}[]", one, other)
    elif theirs != ours:
        yield field, theirs, ours
