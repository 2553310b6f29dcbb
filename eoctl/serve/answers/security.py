"""Answers about security: DescribeAcls and DescribeUserScramCredentials, from the metadata.

No ACL has an effect here, and a client needs no password. Of a SCRAM credential, clients get the
mechanism and the iterations, as from a broker.

No file says whether a broker has an authorizer. Without any ACL in the metadata, the answer is the
same as from a broker without an authorizer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eoctl.serve.protocol.messages import CutOffError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eoctl.serve.state.broker import Request, VirtualBroker

UNKNOWN, ANY = 0, 1  # of each of the numbers of a filter
MATCH, LITERAL, PREFIXED = 2, 3, 4  # PatternType
EVERY_RESOURCE = "*"
NUMBERS = {  # of a filter -> of an ACL
    "resourceTypeFilter": "resourceType",
    "operation": "operation",
    "permissionType": "permissionType",
}
ACL_FIELDS = ("principal", "host", "operation", "permissionType")
UNREADABLE = "The metadata of the cluster are incomplete."


def describe_acls(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeAcls.

    Raises:
        CutOffError: a number of the filter stands for UNKNOWN, so that a broker disconnects.
    """
    wanted = request.body
    if UNKNOWN in (wanted["patternTypeFilter"], *(wanted[each] for each in NUMBERS)):
        raise CutOffError("DescribeAcls: the filter contains UNKNOWN elements")
    if not broker.catalogue.may_report_of_security():
        return _unreadable(resources=[])
    image = broker.catalogue.image
    if image is None or not image.acls:
        code = ErrorCode.SECURITY_DISABLED
        return {"errorCode": code, "errorMessage": "No Authorizer is configured", "resources": []}
    resources: dict[tuple[int, str, int], set[tuple[str, str, int, int]]] = {}
    for each in image.acls.values():
        if _matches(each, wanted):
            resource = (each["resourceType"], each["resourceName"], each["patternType"])
            acl = (each["principal"], each["host"], each["operation"], each["permissionType"])
            resources.setdefault(resource, set()).add(acl)
    return {
        "errorMessage": "",
        "resources": [
            {
                "resourceType": kind,
                "resourceName": name,
                "patternType": pattern,
                "acls": [dict(zip(ACL_FIELDS, each, strict=True)) for each in sorted(acls)],
            }
            for (kind, name, pattern), acls in sorted(resources.items())
        ],
    }


def _unreadable(**fields: Any) -> dict[str, Any]:
    return {"errorCode": ErrorCode.UNKNOWN_SERVER_ERROR, "errorMessage": UNREADABLE, **fields}


def _matches(acl: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a filter has an ACL (AclBindingFilter). A host must be equal, as text."""
    numbers_fit = all(wanted[each] in (ANY, acl[own]) for each, own in NUMBERS.items())
    texts_fit = all(
        wanted[name] in (None, acl[own])
        for name, own in (("principalFilter", "principal"), ("hostFilter", "host"))
    )
    return numbers_fit and texts_fit and _has_pattern(acl, wanted)


def _has_pattern(acl: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a filter has the resource of an ACL (ResourcePatternFilter)."""
    pattern, own = wanted["patternTypeFilter"], acl["patternType"]
    name, own_name = wanted["resourceNameFilter"], acl["resourceName"]
    if pattern not in (ANY, MATCH, own):
        return False
    if name in (None, own_name):
        return True
    if pattern != MATCH:
        return False
    if own == PREFIXED:
        return str(name).startswith(own_name)
    return bool(own == LITERAL and own_name == EVERY_RESOURCE)


def describe_user_scram_credentials(broker: VirtualBroker, request: Request) -> dict[str, Any]:
    """Answer DescribeUserScramCredentials, for the requested users or for all."""
    if not broker.catalogue.may_report_of_security():
        return _unreadable(results=[])
    image = broker.catalogue.image
    known: dict[str, list[dict[str, Any]]] = {}
    for (user, mechanism), iterations in sorted(image.scram_iterations.items() if image else ()):
        known.setdefault(user, []).append({"mechanism": mechanism, "iterations": iterations})
    asked = Counter(each["name"] for each in request.body["users"] or ()) or Counter([*known])
    results = []
    for user, count in asked.items():
        code, words = ErrorCode.NONE, ""
        if count > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            words = f"the user {user} is requested twice"
        elif user not in known:
            code = ErrorCode.RESOURCE_NOT_FOUND
            words = f"the user {user} has no credential"
        found = [] if code else known[user]
        results.append(
            {"user": user, "errorCode": code, "errorMessage": words, "credentialInfos": found}
        )
    return {"errorMessage": "", "results": results}
