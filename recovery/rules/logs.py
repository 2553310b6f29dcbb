"""The rules of segments and batches."""

from __future__ import annotations

from recovery.rules.findings import Rule, Severity

LOG = (
    Rule(
        check_id="SEG-1",
        title=(
            "The base offsets of segments rise, and the last offset of a segment lies below the "
            "next base."
        ),
        severity=Severity.ERROR,
        broker="loads it; look-ups go to the wrong segment",
        command="eoctl repair {}",
        kafka="UnifiedLog, LogSegments",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-2",
        title=(
            "The first batch of a segment does not begin below the base offset that the file's "
            "name says."
        ),
        severity=Severity.ERROR,
        broker="loads it and serves none of these batches; where it recovers it, it ends",
        command="eoctl repair {}",
        kafka="LogSegment.recover, OffsetIndex",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-3",
        title="An offset lies at most 2147483647 above the base offset of its segment.",
        severity=Severity.ERROR,
        broker="splits the segment where it recovers it, and loses nothing",
        excuse="A note if so many offsets were acknowledged.",
        command="eoctl repair {}",
        kafka="UnifiedLog.splitOverflowedSegment",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-4",
        title="No offset is missing between two batches, unless compaction removed it.",
        severity=Severity.ERROR,
        broker="nothing; a consumer goes on behind the gap",
        fix="Take these offsets from a replica or a backup, if one has them.",
        excuse=(
            "None if cleanup.policy says compact, below the offset that the cleaner has reached, "
            "or anywhere if the topic has other replicas. The option --cleanup-policy states the "
            "policy if there is no metadata."
        ),
        kafka="UnifiedLog",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-5",
        title="A segment other than the last segment has no bytes after its last whole batch.",
        severity=Severity.ERROR,
        broker=(
            "nothing above the recovery point's segment; where it recovers the segment, it "
            "truncates the segment there and removes all later segments"
        ),
        command="eoctl repair {}",
        kafka="LogSegment.recover",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-6",
        title="The last segment has no bytes behind its last whole batch.",
        severity=Severity.ERROR,
        broker=(
            "truncates them after a crash; after a clean stop it appends after them, or does not "
            "start if a length makes no sense"
        ),
        command="eoctl repair {}",
        excuse="A note where the log dir was not stopped cleanly: a crash tears the last write.",
        stops_start=True,
        kafka="LogSegment.recover, FileRecords",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-7",
        title="A .log has bytes.",
        severity=Severity.NOTE,
        broker="nothing",
        fix="None needed.",
        is_normal_when_compacted=True,
        excuse="The last segment of every partition.",
        kafka="UnifiedLog",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-8",
        title="A .log has its .index and its .timeindex.",
        severity=Severity.NOTE,
        broker="recovers the segment without .index, makes an empty .timeindex",
        command="eoctl rebuild {}",
        kafka="LogLoader.loadSegmentFiles",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-9",
        title="An index has its .log.",
        severity=Severity.NOTE,
        broker="deletes it",
        command="eoctl repair {} --strategy as-broker",
        excuse=(
            "An error where the state of the directory shows that the .log was acknowledged and "
            "is gone."
        ),
        kafka="LogLoader.loadSegmentFiles",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SEG-10",
        title=(
            "A .log is not larger than 2147483647 bytes: positions in it, and in indexes, are ints."
        ),
        severity=Severity.ERROR,
        broker="refuses to start",
        command="eoctl repair {} --strategy salvage",
        kafka="FileRecords",
        test="test_holes.py",
    ),
    Rule(
        check_id="SEG-11",
        title="A .log has bytes if its indexes have entries.",
        severity=Severity.ERROR,
        broker="nothing: readers go on with the next segment",
        command="eoctl repair {}",
        fix=(
            "Get the .log back, from another replica or a backup, before its indexes are rebuilt: "
            "they are the only trace of its batches."
        ),
        excuse=(
            "The last segment, which checkpoints describe. Also a segment whose indexes are empty "
            "too, as a cleaner leaves it."
        ),
        kafka="LogLoader, Cleaner",
        test="planted/segments.py",
    ),
    Rule(
        check_id="BAT-1",
        title=(
            "The checksum of a batch matches its bytes: CRC-32C from position 21 on for v2, "
            "CRC-32 for a message of v0 or v1."
        ),
        severity=Severity.ERROR,
        broker=(
            "nothing below the recovery point; where it recovers the segment, it truncates the "
            "log here and removes all later segments"
        ),
        command="eoctl repair {}",
        kafka="DefaultRecordBatch.ensureValid, LegacyRecord.ensureValid",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-2",
        title=(
            "The magic is 0, 1 or 2, the length lies within the file and is not below the least "
            "of its magic."
        ),
        severity=Severity.ERROR,
        broker=(
            "truncates the log here where it recovers it; else it does not start if it has to "
            "read it"
        ),
        command="eoctl repair {}",
        stops_start=True,
        kafka="FileLogInputStream, RecordBatch",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-3",
        title=(
            "Last offsets rise from batch to batch, and a batch of v2 begins above the last "
            "offset of the batch before."
        ),
        severity=Severity.ERROR,
        broker=(
            "does not look at it; an entry that is due in an index ends the recovery of the "
            "segment, which is then emptied"
        ),
        command="eoctl repair {}",
        kafka="LogSegment.recover, OffsetIndex.append",
        test="planted/legacy.py",
    ),
    Rule(
        check_id="BAT-4",
        title="The number of records is not negative and fits into the offsets of the batch.",
        severity=Severity.ERROR,
        broker="nothing; a consumer fails here or misses records",
        kafka="DefaultRecordBatch",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-5",
        title="A batch has a record for each of its offsets.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None.",
        is_normal_when_compacted=True,
        kafka="LogValidator, LogCleaner",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-6",
        title="A batch without records is a bare header, uncompressed, with base timestamp -1.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None.",
        kafka="DefaultRecordBatch.writeEmptyHeader",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-7",
        title="The codec is known, the body decompresses, and the records fill it exactly.",
        severity=Severity.ERROR,
        broker=(
            "nothing; a consumer fails here. A control batch that it has to read keeps it from "
            "starting"
        ),
        fix="eoctl repair --strategy salvage leaves the batch out; or fetch the replica again.",
        excuse="A warning where the batch is only larger than what eoctl unpacks.",
        kafka="DefaultRecordBatch.streamingIterator, DefaultRecord.readFrom",
        test="test_records.py",
    ),
    Rule(
        check_id="BAT-8",
        title="The offsets of records rise and lie within their batch.",
        severity=Severity.ERROR,
        broker="nothing; consumers get offsets outside the batch",
        excuse="A warning where only their order is wrong.",
        kafka="DefaultRecordBatch",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-9",
        title="The largest timestamp of a batch equals the largest timestamp of its records.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None.",
        excuse="Batches with LogAppendTime, and empty ones.",
        kafka="LogValidator",
        test="test_records.py",
    ),
    Rule(
        check_id="BAT-10",
        title="The attribute bits that nobody has given a meaning are zero.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None.",
        kafka="DefaultRecordBatch",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-11",
        title=(
            "A batch with a producer id has an epoch, and a sequence unless it is a control "
            "batch; a transactional batch has a producer id."
        ),
        severity=Severity.ERROR,
        broker="takes it as it is",
        kafka="ProducerAppendInfo",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-11b",
        title="A batch without a producer id has neither epoch nor sequence.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None.",
        excuse="The coordinators' topics: they write base sequence 0.",
        kafka="DefaultRecordBatch",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-12",
        title=(
            "A control batch has one record or none, is not compressed, and its record is of a "
            "known type."
        ),
        severity=Severity.WARNING,
        broker="nothing, or, where it cannot read the marker, does not load the partition",
        excuse="An error where the marker cannot be read.",
        stops_start=True,
        kafka="EndTransactionMarker, ControlRecordType",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-13",
        title=(
            "The flag of a delete horizon stands only where a tombstone or a marker is in the "
            "batch."
        ),
        severity=Severity.NOTE,
        broker="nothing",
        fix="None: the flag outlives the tombstone (COMP-3).",
        kafka="LogCleaner",
        test="test_records.py",
    ),
    Rule(
        check_id="BAT-14",
        title="The leader epoch never falls from batch to batch.",
        severity=Severity.WARNING,
        broker="ignores the lower epoch",
        fix="None; often a sign of a log that was edited or put together.",
        excuse="Legacy batches, which have none.",
        kafka="LeaderEpochFileCache",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-15",
        title=(
            "A key occurs once below the cleaner's offset. No check reports it: the cleaner may "
            "be behind."
        ),
        severity=Severity.NOTE,
        broker="nothing",
        fix="None.",
        kafka="LogCleaner",
        test="",
    ),
    Rule(
        check_id="BAT-16",
        title=(
            "Timestamps are milliseconds of this age, neither seconds nor microseconds, and not "
            "far in the future."
        ),
        severity=Severity.NOTE,
        broker="nothing; retention and rolling by time go wrong",
        fix="None.",
        kafka="UnifiedLog.deleteRetentionMsBreachedSegments",
        test="planted/batches.py",
    ),
    Rule(
        check_id="BAT-17",
        title=(
            "A message of v0 or v1 is whole: a wrapper has no key, decompresses, and its inner "
            "messages have right checksums and offsets."
        ),
        severity=Severity.ERROR,
        broker="nothing; a consumer fails here",
        excuse="A warning for a key that a reader skips.",
        kafka="AbstractLegacyRecordBatch",
        test="planted/legacy.py",
    ),
)
