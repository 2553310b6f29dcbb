"""The rules of the deletions and cleanings of a broker's own tasks after its start (TAK)."""

from __future__ import annotations

from recovery.rules.findings import Rule, Severity

_TEST = "cli/test_forecast.py"

TAKINGS = (
    Rule(
        check_id="TAK-1",
        title="No segment is deleted for its age while its batches are younger than retention.ms.",
        severity=Severity.ERROR,
        broker="deletes the segment at the first run of retention, and all older segments",
        command="eoctl rebuild {}",
        fix="Rebuild the time indexes before the start.",
        excuse="Segments that the start recovers, because it derives their time index again.",
        kafka="LogSegment.largestTimestamp, UnifiedLog.deleteRetentionMsBreachedSegments",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-2",
        title="The cleaner can read a compacted log up to its first uncleanable offset.",
        severity=Severity.ERROR,
        broker=(
            "marks the log as uncleanable until the next start, leaves .cleaned files, and neither "
            "compacts nor deletes from it"
        ),
        command="eoctl repair {}",
        kafka="LogCleaner, Cleaner.growBuffersOrFail, ByteBufferLogInputStream",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-3",
        title="The file system has room for the copies that the cleaner makes.",
        severity=Severity.ERROR,
        broker="takes the log dir offline, and stops if it has no other log dir",
        fix=(
            "Free room, or start with log.cleaner.enable=false. The number of bytes is an upper "
            "bound."
        ),
        kafka="Cleaner.cleanSegments, LogDirFailureChannel",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-4",
        title="The cleaner rewrites no batch with a wrong checksum.",
        severity=Severity.ERROR,
        broker="writes the batch again with a right checksum, so that nobody can find the damage",
        command="eoctl repair {}",
        fix="Repair the log before the start.",
        kafka="MemoryRecords.filterTo",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-5",
        title="The first run of retention after the start deletes nothing.",
        severity=Severity.NOTE,
        broker="deletes the segments, and frees their room file.delete.delay.ms later",
        fix="Start with a large log.initial.task.delay.ms if the records have to stay.",
        kafka="LogManager.cleanupLogs, UnifiedLog.deleteOldSegments",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-6",
        title="No segment has a timestamp in the future.",
        severity=Severity.NOTE,
        broker="keeps this segment and all later segments until that time plus retention.ms",
        fix="Truncate or copy the log without these records, or wait.",
        kafka="UnifiedLog.deleteRetentionMsBreachedSegments",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-7",
        title="The cleaner has recorded progress for a compacted log with closed segments.",
        severity=Severity.NOTE,
        broker="cleans the log from its start, if its dirty share is large enough",
        fix="None needed after the next start, if the cleaner works.",
        kafka="LogCleanerManager.cleanableOffsets",
        test=_TEST,
    ),
    Rule(
        check_id="TAK-8",
        title="A broker with tiered topics has remote.log.storage.system.enable=true.",
        severity=Severity.ERROR,
        broker="sets the log start to the first local segment, and forgets the remote segments",
        fix="Set remote.log.storage.system.enable=true before the start.",
        kafka="UnifiedLog, LogLoader",
        test=_TEST,
    ),
)
