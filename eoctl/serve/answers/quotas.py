"""Answers of what clients were allowed: DescribeClientQuotas, as the metadata have it.

Nobody is held back here by any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eoctl.serve.protocol.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from eoctl.serve.state.broker import Request, VirtualBroker

EXACT, DEFAULT, SPECIFIED = 0, 1, 2  # what a filter says of a type: that name, the default, any
IP = "ip"
TYPES = {IP, "user", "client-id"}

Entity = tuple[tuple[str, str | None], ...]


def describe_client_quotas(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeClientQuotas."""
    image = broker.catalogue.image
    quotas: dict[Entity, dict[str, float]] = {} if image is None else image.quotas
    try:
        names, types = _wanted(request.body["components"])
    except RequestError as exc:
        return {"errorCode": exc.code, "errorMessage": exc.message, "entries": None}
    return {
        "errorMessage": None,
        "entries": [
            {
                "entity": [{"entityType": kind, "entityName": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in values.items()],
            }
            for entity, values in quotas.items()
            if _matches(entity, names, types, is_strict=request.body["strict"])
        ],
    }


def _wanted(components: list[dict[str, Any]]) -> tuple[dict[str, str | None], set[str]]:
    """Return the names that are wanted by type, and the types of which any is.

    Raises:
        RequestError: no broker would understand that.
    """
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for each in components:
        kind, how, name = each["entityType"], each["matchType"], each["match"]
        if not kind or kind in names or kind in types:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"type {kind!r}: empty, or twice")
        if kind not in TYPES:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"type {kind!r} is not known")
        if how not in (EXACT, DEFAULT, SPECIFIED) or (how == EXACT) is (name is None):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"match {how} of {name!r}")
        if how == SPECIFIED:
            types.add(kind)
        else:
            names[kind] = name
    wanted = {*names, *types}
    if IP in wanted and len(wanted) > 1:
        raise RequestError(ErrorCode.INVALID_REQUEST, "an ip stands alone")
    return names, types


def _matches(
    entity: Entity, names: dict[str, str | None], types: set[str], *, is_strict: bool
) -> bool:
    own = dict(entity)
    if is_strict and len(own) != len(names) + len(types):
        return False
    return types <= own.keys() and all(
        kind in own and own[kind] == name for kind, name in names.items()
    )
