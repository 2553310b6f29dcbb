"""Targets: requests of Kafka's protocol, as `eoctl serve` answers them over a real log dir."""

from __future__ import annotations

import asyncio
import struct
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from eoctl.commands.serve import ServeOptions, open_catalogue
from eoctl.serve.connection import ANSWERS, answer
from eoctl.serve.protocol.messages import API_VERSIONS, CutOffError, apis
from eoctl.serve.state.broker import Client, VirtualBroker
from eoctl.serve.state.catalogue import ServeRules
from eoctl.serve.state.members import Members
from storage.dirs.discovery import discover
from storage.errors import CorruptError
from storage.formats.message import decode
from tests.storage.formats.message_samples import random_message
from tests.wire import encoded

from .corpus import GOLDEN_DIR, SEED_MAX_BYTES
from .engine import Target
from .promises import require

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.serve.state.catalogue import Catalogue

    from .corpus import Corpus

Result = TypeVar("Result")

ARCHIVE, STATE = "kafka-4.3.1", "clean"
TOPICS = (b"txn", b"plain", b"rolled", b"__consumer_offsets")
CORRELATION_ID = struct.Struct(">i")
ANSWER_S = 5.0
CLIENT = Client(name="", address="127.0.0.1", host="127.0.0.1", port=9092)
_PARTITION = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}
_NAMED: dict[str, dict[str, Any]] = {
    "Fetch": {"minBytes": 0, "topics": [{"topic": "txn", "partitions": [_PARTITION]}]},
    "ListOffsets": {
        "topics": [{"name": "txn", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]
    },
    "Metadata": {"topics": [{"name": "txn"}]},
    "OffsetForLeaderEpoch": {
        "topics": [{"topic": "txn", "partitions": [
            {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": 0}]}]
    },
    "JoinGroup": {
        "groupId": "g", "sessionTimeoutMs": 10_000, "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    "DescribeProducers": {"topics": [{"name": "txn", "partitionIndexes": [0, 1]}]},
    "DescribeConfigs": {"resources": [{"resourceType": 2, "resourceName": "txn"}]},
}  # fmt: skip


class _AtOnce(VirtualBroker):
    """A broker that does in this thread what takes long: there its steps are counted."""

    async def apart(self, call: Callable[..., Result], *values: Any) -> Result:
        return call(*values)


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="eoctl-fuzz-")


@cache
def _catalogue() -> Catalogue:
    directory = _directory().name
    with tarfile.open(GOLDEN_DIR / f"{ARCHIVE}.tar.xz") as archive:
        wanted = [each for each in archive if Path(each.name).parts[:1] == (STATE,)]
        archive.extractall(directory, wanted, filter="data")
    options = ServeOptions(ServeRules(has_internal=True))
    return open_catalogue(discover([str(Path(directory, STATE))]), options)


@cache
def _executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


async def _answered(data: bytes) -> None:
    broker = _AtOnce(_catalogue(), Members(), _executor())
    answering = answer(broker, data, CLIENT, lambda: True)
    found, _ = await asyncio.wait_for(answering, ANSWER_S)
    if found is None:
        require(data[:2] == b"\0\0", "only records may want no answer")
        return
    try:
        require(CORRELATION_ID.unpack_from(found.data) == CORRELATION_ID.unpack(data[4:8]), "id")
        _, version = struct.unpack_from(">hh", data)
        out = bytes(found.data)
        if found.fetched is not None:
            for place, each in sorted(
                ((place.pos, given.size_bytes) for place, given in found.fetched.records),
                reverse=True,
            ):
                out = out[:place] + bytes(each) + out[place:]
        pos = CORRELATION_ID.size
        if not found.api.has(version):
            version = 0  # only ApiVersions is answered then
        elif found.api.is_flexible(version) and found.api.key != API_VERSIONS:
            pos += 1
        _, end_pos = decode(found.api.response, version, out, pos)
        require(end_pos == len(out), f"{len(out) - end_pos} bytes behind the response")
    finally:
        if found.fetched is not None:
            found.fetched.close()


def _request(data: bytes) -> None:
    """What is no request is said to be none; all others are answered in their own shape."""
    try:
        asyncio.run(_answered(data))
    except (CutOffError, UnicodeDecodeError) as exc:
        require(bool(str(exc)), "no words")
        raise CorruptError(str(exc), check_id="MSG-3", pos=0) from exc


def _seeds(_corpus: Corpus) -> list[bytes]:
    rng = Random(24)
    found = []
    for key, api in apis().items():
        if key not in ANSWERS:
            continue
        found += [
            encoded(api, version, random_message(api.request, version, rng))
            for version in sorted({api.first_version, api.last_version})
        ]
        if (body := _NAMED.get(api.name)) is not None:
            found.append(encoded(api, min(api.last_version, 12), body))
    return [each for each in found if len(each) <= SEED_MAX_BYTES]


TARGETS = (Target("serve-request", _request, _seeds, share_runs=3000, words=TOPICS),)
