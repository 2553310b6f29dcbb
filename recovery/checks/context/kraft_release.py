"""Metadata records that a release cannot load: it is too old for them, or too new.

A broker replays the newest snapshot and all of the log after it, including records that are later
undone. Therefore each record counts, not only the current features. A broker does not check a
record's version, but reads the fields it knows. A version with only new tagged fields is harmless
(KRF-4).
Sources: FeatureControlManager, FeaturesDelta, AbstractApiMessageSerde, RecordsIterator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.checks.context import broker_version as releases
from recovery.checks.context.broker_version import (
    BrokerVersion,
    highest_record_version,
    supported_levels,
)
from recovery.rules.findings import Severity
from storage.errors import FormatError
from storage.formats import cluster_metadata as frame
from storage.formats import cluster_metadata as records
from storage.formats.cluster_metadata import RECORDS
from storage.formats.control_record import ControlRecordType

if TYPE_CHECKING:
    from recovery.checks.context.collector import Collector
    from storage.kernels.protocol import ScannedBatch

CANNOT_LOAD = "cannot load the cluster's metadata, and stops"
LOADS_NOTHING = "cannot load the cluster's metadata, and serves nothing"

_CONTROL_TYPES = frozenset(ControlRecordType)
_QUORUM_TYPES = (ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS)


class ReleaseCheck:
    """The check of the records that a release replays. It reports one record per kind and file.

    Args:
        version: the release that starts. None: CHECKED, and records too old for it are no finding,
            because nobody said that it starts here.
        collector: takes the findings.
    """

    def __init__(self, version: BrokerVersion | None, collector: Collector) -> None:
        self._is_named = version is not None
        self._version = releases.CHECKED.line if version is None else version
        self._collector = collector
        self._reported: set[tuple[str, str]] = set()

    @property
    def reads_bootstrap(self) -> bool:
        """Return whether the release reads bootstrap.checkpoint."""
        return self._version >= releases.BOOTSTRAP_CHECKPOINT

    def take_record(
        self, path: str, batch: ScannedBatch, offset: int, value: bytes | None, action: str
    ) -> bool:
        """Check the value of a data record, and return whether the release knows it."""
        version = self._version
        try:
            header = frame.parse_header(value)
        except FormatError:
            return True  # damage, or a frame version that no release knows
        if header.api_key not in RECORDS:
            self._add(path, batch, offset, f"metadata record type {header.api_key}", "", "", action)
            return False
        if version < releases.FRAME_VERSION_1:
            self._add(path, batch, offset, "frame version 1", "0", "1", action)
            return False
        what = f"{records.RECORD_NAMES[header.api_key]} version {header.version}"
        known = highest_record_version(header.api_key, version)
        if known is None:
            self._add(path, batch, offset, what, "", "", action)
            return False
        if header.version > known and not _reads_as(value or b"", header, known):
            self._add(path, batch, offset, what, f"0..{known}", str(header.version), action)
            return False
        if header.api_key == records.FEATURE_LEVEL:
            self._check_feature(path, batch, offset, value or b"", header, action)
        return True

    def take_control(
        self, path: str, batch: ScannedBatch, offset: int, control_type: int, action: str
    ) -> None:
        """Check a control record. Releases before 3.5 do not decode control records."""
        first, last = releases.DECODES_CONTROL_RECORDS, releases.DYNAMIC_QUORUM
        if self._version < first:
            return
        if control_type not in _CONTROL_TYPES:
            self._add(path, batch, offset, f"control record type {control_type}", "", "", action)
        elif control_type in _QUORUM_TYPES and self._version < last:
            what = f"{ControlRecordType(control_type).name} record"
            self._add(path, batch, offset, what, "", "", action)

    def _check_feature(
        self,
        path: str,
        batch: ScannedBatch,
        offset: int,
        value: bytes,
        header: frame.FrameHeader,
        action: str,
    ) -> None:
        try:
            data = frame.parse_message(RECORDS, value, header)
        except FormatError:
            return
        name, level = data["name"], data["featureLevel"]
        levels = supported_levels(name, self._version)
        if levels is None:  # of a feature that is newer than all known releases
            levels = range(1 if self._version >= releases.WITHOUT_ZOOKEEPER else level + 1)
        if level in levels or (level < levels[0] and not self._is_named):
            return
        expected = f"{levels[0]}..{levels[-1]}" if levels else ""
        self._add(path, batch, offset, f"{name} {level}", expected, str(level), action)

    def _add(
        self,
        path: str,
        batch: ScannedBatch,
        offset: int,
        what: str,
        expected: str,
        found: str,
        action: str,
    ) -> None:
        if (path, what) in self._reported:
            return
        self._reported.add((path, what))
        is_feature = what.partition(" ")[0] in releases.FEATURES
        if action == CANNOT_LOAD and not is_feature and self._version < releases.METADATA_LOADER:
            action = LOADS_NOTHING
        self._collector.add(
            "KRF-4",
            path,
            f"Kafka {self._version} does not know {what}",
            severity=Severity.ERROR,
            start_pos=batch.pos,
            end_pos=batch.pos + batch.header.batch_bytes,
            base_offset=offset,
            last_offset=offset,
            expected=expected,
            found=found,
            broker_action=action,
        )


def _reads_as(value: bytes, header: frame.FrameHeader, known: int) -> bool:
    try:
        frame.parse_message(RECORDS, value, header._replace(version=known))
    except FormatError:
        return False
    return True
