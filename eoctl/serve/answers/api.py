"""Which API is answered how, from the bytes of a request to those of its response."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from eoctl.serve.answers import (
    dead_groups,
    groups,
    metadata,
    offsets,
    quotas,
    settings,
    transactions,
)
from eoctl.serve.answers import fetch as fetching
from eoctl.serve.answers.fetch import Fetched
from eoctl.serve.answers.refusals import REFUSALS, UNOFFERED
from eoctl.serve.protocol.errors import CutOffError, ErrorCode
from eoctl.serve.protocol.messages import (
    API_VERSIONS,
    apis,
    encode_response,
    parse_body,
    parse_header,
)
from eoctl.serve.state.broker import Client, Request, VirtualBroker
from storage.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eoctl.serve.protocol.messages import Api
    from storage.formats.varint import BytesLike

    Value = dict[str, Any] | Fetched | None
    Answering = Callable[[VirtualBroker, Request], Value | Awaitable[Value]]


LARGE_REQUEST_BYTES = 1 << 16
OF_ALL_TOPICS = (3, 75)  # may be answered with everything that there is
Result = TypeVar("Result")
METADATA_VERSION, LOWEST_METADATA_VERSION = "metadata.version", 7
FEATURES_OF_ZERO_SINCE = 4
PRODUCE = 0  # versions that are gone are told, for old clients that look for them
STABLE = {22: 5}  # the last version of an API that a broker offers by itself


class Response(NamedTuple):
    """A response; `fetched` has the records that belong into it."""

    api: Api
    data: bytearray
    fetched: Fetched | None = None


def api_versions(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer ApiVersions: what is answered here, refusals included, and the features."""
    image = broker.catalogue.image
    features = {} if image is None else image.features
    # Clients of before version 4 fail at a feature that may be 0.
    supported = [
        {"name": name, "minVersion": _lowest(name, level), "maxVersion": level}
        for name, level in sorted(features.items())
        if name == METADATA_VERSION or request.version >= FEATURES_OF_ZERO_SINCE
    ]
    answered = [apis()[key] for key in sorted({*ANSWERS} - {*UNOFFERED})]
    return {
        "errorCode": ErrorCode.NONE,
        "apiKeys": [
            {
                "apiKey": each.key,
                "minVersion": 0 if each.key == PRODUCE else each.first_version,
                "maxVersion": STABLE.get(each.key, each.last_version),
            }
            for each in answered
        ],
        "supportedFeatures": supported,
        "finalizedFeaturesEpoch": -1 if image is None else max(image.end_offset - 1, -1),
        "finalizedFeatures": [
            {"name": name, "maxVersionLevel": level, "minVersionLevel": level}
            for name, level in sorted(features.items())
        ],
    }


def _lowest(feature: str, level: int) -> int:
    """A broker of Kafka 4 knows no metadata version below 3.3-IV3."""
    return min(level, LOWEST_METADATA_VERSION) if feature == METADATA_VERSION else 0


def _apart(
    answer: Callable[[VirtualBroker, Request], dict[str, Any]],
) -> Callable[[VirtualBroker, Request], Awaitable[dict[str, Any]]]:
    """Have an answer that reads files made in another thread."""

    async def answering(broker: VirtualBroker, request: Request) -> dict[str, Any]:
        return await broker.apart(answer, broker, request)

    return answering


ANSWERS: dict[int, Answering] = {
    **REFUSALS,
    **UNOFFERED,
    1: fetching.fetch,
    2: _apart(offsets.list_offsets),
    3: _apart(metadata.metadata),
    8: groups.offset_commit,
    9: _apart(dead_groups.offset_fetch),
    10: groups.find_coordinator,
    11: groups.join_group,
    12: groups.heartbeat,
    13: groups.leave_group,
    14: groups.sync_group,
    15: _apart(dead_groups.describe_groups),
    16: _apart(dead_groups.list_groups),
    API_VERSIONS: api_versions,
    48: quotas.describe_client_quotas,
    23: _apart(offsets.offset_for_leader_epoch),
    32: _apart(settings.describe_configs),
    35: _apart(settings.describe_log_dirs),
    55: _apart(metadata.describe_quorum),
    60: metadata.describe_cluster,
    61: _apart(transactions.describe_producers),
    65: _apart(transactions.describe_transactions),
    66: _apart(transactions.list_transactions),
    69: _apart(dead_groups.consumer_group_describe),
    74: settings.list_config_resources,
    75: _apart(metadata.describe_topic_partitions),
}


async def answer(
    broker: VirtualBroker, data: BytesLike, client: Client, is_gone: Callable[[], bool]
) -> tuple[Response | None, str | None]:
    """Answer a request (None: it wants no answer); returns the client id that it names, too.

    Raises:
        CutOffError: it is none, or refused and wants no answer.
    """
    try:
        header = parse_header(data)
    except (FormatError, UnicodeDecodeError) as exc:
        raise CutOffError(f"not a request: {exc}") from exc
    api = apis().get(header.api_key)
    if api is None or header.api_key not in ANSWERS:
        raise CutOffError(f"API {header.api_key} is not known")
    if not api.has(header.version):
        if api.key != API_VERSIONS:
            raise CutOffError(f"{api.name} has no version {header.version}")
        # As the first one that there was (KIP-511): any client can read that.
        asked = Request(api=api, version=0, body={}, client=client, is_gone=is_gone)
        told = api_versions(broker, asked)
        told["errorCode"] = ErrorCode.UNSUPPORTED_VERSION
        return Response(api, encode_response(api, 0, header.correlation_id, told)), header.client_id
    is_large = len(data) > LARGE_REQUEST_BYTES
    try:
        body = await _perhaps_apart(broker, is_large, parse_body, api, header, data)
    except FormatError as exc:
        raise CutOffError(f"{api.name} version {header.version}: {exc}") from exc
    request = Request(
        api=api,
        version=header.version,
        body=body,
        client=client._replace(name=header.client_id or ""),
        is_gone=is_gone,
    )
    found: Any = ANSWERS[api.key](broker, request)
    if inspect.isawaitable(found):
        found = await found
    fetched = found if isinstance(found, Fetched) else None
    value = found.value if fetched is not None else found
    if value is None:
        return None, header.client_id
    try:
        is_large = is_large or api.key in OF_ALL_TOPICS
        out = await _perhaps_apart(
            broker, is_large, encode_response, api, header.version, header.correlation_id, value
        )
    except BaseException:
        if fetched is not None:
            fetched.close()
        raise
    return Response(api, out, fetched), header.client_id


async def _perhaps_apart(
    broker: VirtualBroker, is_large: bool, call: Callable[..., Result], *values: Any
) -> Result:
    """Do what takes long for a large message without keeping other clients waiting."""
    return await broker.apart(call, *values) if is_large else call(*values)
