"""Feature levels: the obstacles to higher levels, and the needs of a downgrade.

A level can be set after every registered broker and controller supports it. A node that does not
return still counts (QuorumController, ClusterControlManager). metadata.version can be lowered if no
level in between has new records (MetadataVersion.didMetadataChange). Compared with 4.4.0: a ghost
controller that supports 7 to 30 blocks 31 and above. Unregistering a controller needs
metadata.version 33 itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.context.broker_version import (
    FEATURES,
    METADATA_VERSION,
    NEWEST,
    highest,
    supported_levels,
)
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.releases.survey import Level, Registration, Survey

# Levels of metadata.version with changed record types, so that no downgrade crosses them.
CHANGED_RECORDS = frozenset({8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
UNREGISTERS_CONTROLLERS = 33  # lowest metadata.version that can unregister a controller


class Obstacle(NamedTuple):
    """A node that keeps a level from being set.

    Attributes:
        role, node_id: of the node.
        is_voter: of a controller. A controller that does not vote and does not run is a ghost.
        is_given: its log dir was given.
        feature, level: the lowest level that it does not support.
        knows: the levels that it supports, such as `7..30`.
        offset, registered_ms: of its last registration. None if only a snapshot has it.
        remedy: what to do, with a command if there is one.
    """

    role: str
    node_id: int
    is_voter: bool
    is_given: bool
    feature: str
    level: int
    knows: str
    offset: int | None
    registered_ms: int | None
    remedy: str


class Lowering(NamedTuple):
    """The change of a feature that an older release requires.

    Attributes:
        feature, level: the current level.
        needed_level: the highest level that the release supports.
        is_possible: it can be lowered that far.
        why: the reason, if it is not possible.
        offset, path: of the record that made it impossible. None if it is possible or unknown.
    """

    release: str
    feature: str
    level: int
    needed_level: int
    is_possible: bool
    why: str
    offset: int | None
    path: str


def raised_levels(found: Survey) -> dict[str, int]:
    """Return the highest level of each feature in the newest release, if above the cluster's."""
    now = {} if found.image is None else found.image.features
    wanted = {name: highest(levels, NEWEST) or 0 for name, levels in FEATURES.items()}
    return {name: level for name, level in wanted.items() if level > now.get(name, 0)}


def obstacles_of(found: Survey) -> Iterator[Obstacle]:
    """List the nodes that keep the next levels from being set, controllers first."""
    image = found.image
    if image is None:
        return
    wanted = raised_levels(found)
    here = {each.meta.node_id for each in found.log_dirs if each.meta is not None}
    known = {"broker": {*image.brokers}, "controller": {*image.controllers}}
    for (role, node_id), node in sorted(found.registrations.items(), reverse=True):
        if node_id not in known[role]:
            continue  # it was unregistered
        # If the voters are unknown, no controller is a ghost.
        is_voter = role == "controller" and (not image.voters or node_id in image.voters)
        for name, level in wanted.items():
            lowest, top = node.levels.get(name, (0, 0))
            if top >= level:
                continue
            yield Obstacle(
                role=role,
                node_id=node_id,
                is_voter=is_voter,
                is_given=node_id in here,
                feature=name,
                level=top + 1,
                knows=f"{lowest}..{top}",
                offset=None if node.offset < 0 else node.offset,
                registered_ms=None if node.timestamp_ms < 0 else node.timestamp_ms,
                remedy="it registers again when it starts with a newer release"
                if node_id in here
                else _remedy(found, node, is_voter=is_voter),
            )
            break  # one feature per node is enough


def ghosts_of(found: Survey) -> list[Registration]:
    """Return controllers that are registered and do not vote: ghosts, unless they run."""
    image = found.image
    if image is None or not image.voters:
        return []
    return [
        node
        for (role, node_id), node in sorted(found.registrations.items())
        if role == "controller" and node_id in image.controllers and node_id not in image.voters
    ]


def _remedy(found: Survey, node: Registration, *, is_voter: bool) -> str:
    number, image = node.node_id, found.image
    if node.role == "broker":
        return (
            "start it with the newer release; if it is gone for good:"
            f" kafka-cluster.sh unregister --bootstrap-server HOST:PORT --id {number}"
        )
    if is_voter:
        directory = "DIRECTORY-ID"
        if image is not None and any(found_id := image.voter_directories.get(number, b"")):
            directory = format_uuid(found_id)
        return (
            "start it with the newer release; if it is gone for good: kafka-metadata-quorum.sh"
            " --bootstrap-server HOST:PORT remove-controller"
            f" --controller-id {number} --controller-directory-id {directory}"
        )
    return unregister_words(found, number)


def unregister_words(found: Survey, node_id: int) -> str:
    """Return how to remove a controller that does not vote, at the cluster's levels."""
    level = 0 if found.image is None else found.image.features.get(METADATA_VERSION, 0)
    call = f"kafka-cluster.sh unregister-controller --bootstrap-server HOST:PORT --id {node_id}"
    if level >= UNREGISTERS_CONTROLLERS:
        return f"{call} (Kafka 4.4, KIP-1312)"
    return (
        f"start a controller of Kafka {NEWEST} with node.id={node_id}, so that it registers again,"
        " and stop it; the command that removes it needs"
        f" metadata.version {UNREGISTERS_CONTROLLERS}: {call}"
    )


# -- downgrades


def lowerings_for(found: Survey, version: BrokerVersion) -> Iterator[Lowering]:
    """Yield the features above the levels of a release, metadata.version first."""
    features = {} if found.image is None else found.image.features
    for name in sorted(features, key=lambda each: (each != METADATA_VERSION, each)):
        levels = supported_levels(name, version)
        if levels is None or not levels or features[name] <= levels[-1]:
            continue
        needed, level = levels[-1], features[name]
        offset: int | None = None
        path = why = ""
        if name == METADATA_VERSION:
            changed = [each for each in CHANGED_RECORDS if needed < each <= level]
            if changed:
                why = f"level {min(changed)} brought records that {needed} does not have"
                raised = _raised(found.levels, name, min(changed))
                if raised is not None:
                    offset, path = raised.place.offset, raised.place.path
        yield Lowering(
            release=str(version),
            feature=name,
            level=level,
            needed_level=needed,
            is_possible=not why,
            why=why,
            offset=offset,
            path=path,
        )


def _raised(levels: list[Level], name: str, level: int) -> Level | None:
    """Return the record since which a feature has been at or above a level."""
    found = None
    for each in levels:
        if each.name == name:
            if each.level < level:
                found = None
            elif found is None:
                found = each
    return found
