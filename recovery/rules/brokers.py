"""The rules of how a broker writes, loads and recovers a log. No finding breaks them."""

from __future__ import annotations

from recovery.rules.findings import Rule

WRITING = (
    Rule(
        check_id="APP-1",
        title=(
            "An append comes from a client, a coordinator, a leader that is followed, or the "
            "metadata quorum; only a client's is checked in full."
        ),
        kafka="AppendOrigin",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="APP-2",
        title=(
            "Every batch that is appended has a right checksum and is not larger than "
            "max.message.bytes; a follower takes what its leader has. Offsets rise; gaps are "
            "allowed."
        ),
        kafka="UnifiedLog.analyzeAndValidateRecords",
        test="test_writer.py",
    ),
    Rule(
        check_id="APP-3",
        title=(
            "A client's batch begins at offset 0, has at least one record and a record for each "
            "offset, and is no control batch. It has a sequence if it has a producer id, and keys "
            "if the topic is compacted. Timestamps lie within the topic's bounds."
        ),
        kafka="LogValidator",
        test="test_writer.py",
    ),
    Rule(
        check_id="APP-4",
        title=(
            "The leader gives out offsets from the log end on and stamps its leader epoch into "
            "the header."
        ),
        kafka="LogValidator",
        test="test_writer.py",
    ),
    Rule(
        check_id="APP-5",
        title=(
            "With CreateTime the largest timestamp comes from the records. With LogAppendTime it "
            "comes from the broker's clock, and the records keep their timestamps."
        ),
        kafka="LogValidator",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="APP-6",
        title=(
            "An append first writes partition.metadata, then the leader epochs, rolls, checks the "
            "producer, writes the .log, moves the log end, and last updates producers and "
            ".txnindex. A refused append may leave a new epoch or an empty segment."
        ),
        kafka="UnifiedLog.append",
        test="test_writer.py",
    ),
    Rule(
        check_id="APP-7",
        title="A set of batches is written with one write. A crash may leave any beginning of it.",
        kafka="FileRecords.append",
        test="test_torn_batch.py",
    ),
    Rule(
        check_id="APP-8",
        title=(
            "Once more than index.interval.bytes were written since the last entry, the next "
            "batch gets an entry in .index. Brokers before 3.9.1 and 4.0.1 do so per append, so "
            "the last offset may belong to a later batch. The counter starts again when a segment "
            "is opened."
        ),
        kafka="LogSegment.append",
        test="test_writer.py",
    ),
    Rule(
        check_id="APP-9",
        title=(
            "When .index gets an entry, .timeindex gets an entry with the largest timestamp so "
            "far and the offset of its batch, if that timestamp is above the last entry."
        ),
        kafka="LogSegment.append, TimeIndex",
        test="test_writer.py",
    ),
    Rule(
        check_id="APP-10",
        title=(
            "A follower writes the leader's bytes unchanged; where its segments begin, and its "
            "indexes, are its own."
        ),
        kafka="ReplicaFetcherThread",
        test="recovery/replicas/test_rejoin.py",
    ),
    Rule(
        check_id="ROLL-1",
        title=(
            "A new segment begins when the next set does not fit into segment.bytes, when "
            "segment.ms has passed, when an index is full, or when an offset does not fit."
        ),
        kafka="LogSegment.shouldRoll",
        test="test_writer.py",
    ),
    Rule(
        check_id="ROLL-2",
        title=(
            "The broker takes the time that has passed from the timestamps of batches. It uses "
            "the clock only if the first batch has no timestamp."
        ),
        kafka="LogSegment.timeWaitedForRoll",
        test="test_writer.py",
    ),
    Rule(
        check_id="ROLL-3",
        title="On compacted topics max.compaction.lag.ms rolls as well.",
        kafka="LogConfig",
        test="test_writer.py",
    ),
    Rule(
        check_id="ROLL-6",
        title=(
            "On a roll the old segment gets its last time entry, indexes are trimmed, and a "
            "producer snapshot is written at the new base. Later, both are flushed and the "
            "recovery point is moved."
        ),
        kafka="UnifiedLog.roll",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="ROLL-7",
        title="An empty active segment with the same base is made again in its place.",
        kafka="LocalLog.roll",
        test="recovery/transactions/test_abort.py",
    ),
    Rule(
        check_id="TRUNC",
        title=(
            "A truncation to an offset removes the whole batch that contains it and everything "
            "after it. It applies to .log, indexes, .txnindex, snapshots and leader epochs. It "
            "lowers a recovery point, high watermark or log start above the offset. The log end "
            "is then that offset, even if the batch began lower."
        ),
        kafka="UnifiedLog.truncateTo",
        test="broker/test_truncate.py",
    ),
    Rule(
        check_id="OFF-1",
        title=(
            "log start <= last stable offset <= high watermark <= log end; the recovery point is "
            "not beyond the log end, the cleaner's offset within the log."
        ),
        kafka="UnifiedLog",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="OFF-3",
        title=(
            "A checkpointed high watermark is a lower bound, because it is written every few "
            "seconds."
        ),
        kafka="ReplicaManager.checkpointHighWatermarks",
        test="recovery/truncate/test_target.py",
    ),
    Rule(
        check_id="OFF-5",
        title=(
            "The log start moves by retention, by DeleteRecords (into a batch, too), or with the "
            "leader. A crash undoes a DeleteRecords that no checkpoint has, although the leader "
            "epochs are already truncated."
        ),
        kafka="UnifiedLog.maybeIncrementLogStartOffset",
        test="test_partition.py",
    ),
    Rule(
        check_id="COMP-3",
        title=(
            "The first cleaning that meets a tombstone gives its batch a delete horizon; one "
            "after the horizon drops it. The flag stays in the batch."
        ),
        kafka="Cleaner",
        test="test_records.py",
    ),
    Rule(
        check_id="COMP-4",
        title="Batches of aborted transactions go with the first cleaning.",
        kafka="Cleaner",
        test="recovery/rebuild/test_derive.py",
    ),
    Rule(
        check_id="COMP-6",
        title=(
            "A batch that has lost its records is kept as a bare header where a producer's state "
            "needs it. An empty control batch is one of these."
        ),
        kafka="MemoryRecords.filterTo",
        test="test_log_tail.py",
    ),
    Rule(
        check_id="COMP-10",
        title=(
            "Indexes of cleaned segments have an entry per buffer: its offset may be far above "
            "the batch at its position."
        ),
        kafka="Cleaner",
        test="recovery/repair/test_salvage.py",
    ),
)

LOADING = (
    Rule(
        check_id="REC-2",
        title=(
            "Recovery points and log starts are read at the start. A checkpoint with a wrong "
            "version, count or number of fields takes its log dir offline. A field that is no "
            "number only resets an offset checkpoint, but ends the start in "
            "leader-epoch-checkpoint."
        ),
        kafka="CheckpointFile, LogManager.loadLogs",
        test="cli/test_repair.py",
    ),
    Rule(
        check_id="REC-3",
        title=(
            "A broker removes every file that ends with .deleted, then every .swap from the "
            "lowest .cleaned on, then every .cleaned."
        ),
        kafka="LogLoader",
        test="test_start_prediction.py",
    ),
    Rule(
        check_id="REC-4",
        title=(
            "Segments that new segments replace are deleted, then each .swap gets its final name."
        ),
        kafka="LogLoader.load",
        test="test_start_prediction.py",
    ),
    Rule(
        check_id="REC-5",
        title=(
            "A segment without .index is recovered, and so is a segment whose .txnindex has an "
            "entry below its base. A segment without .timeindex gets an empty .timeindex. Indexes "
            "without .log are deleted. The contents of indexes are not verified."
        ),
        kafka="LogLoader.loadSegmentFiles",
        test="test_start_prediction.py",
    ),
    Rule(
        check_id="REC-6",
        title=(
            "Without the clean-shutdown marker the segment with the recovery point and all later "
            "segments are recovered. If a segment is truncated, all later segments are removed."
        ),
        kafka="LogLoader.recoverLog",
        test="recovery/replay/test_recover_state.py",
    ),
    Rule(
        check_id="REC-7",
        title=(
            "Recovering a segment verifies the checksum of each batch, derives indexes, "
            ".txnindex, producers and leader epochs again, and truncates the .log at the first bad "
            "batch."
        ),
        kafka="LogSegment.recover",
        test="test_torn_batch.py",
    ),
    Rule(
        check_id="REC-8",
        title=(
            "A recovery looks neither at the order of offsets, unless an index entry is due, nor "
            "at records, gaps or epochs that fall."
        ),
        kafka="LogSegment.recover",
        test="broker/test_repair.py",
    ),
    Rule(
        check_id="REC-9",
        title=(
            "A log that ends below its checkpointed log start loses all segments, and begins again "
            "there."
        ),
        kafka="LogLoader.load",
        test="test_start_files.py",
    ),
    Rule(
        check_id="REC-10",
        title=(
            "A segment with an offset too far above its base is split in several; the loading "
            "begins again."
        ),
        kafka="UnifiedLog.splitOverflowedSegment",
        test="broker/test_repair.py",
    ),
    Rule(
        check_id="REC-11",
        title=(
            "The log end is read from the last entry of the last .index on. An entry that lies "
            "beyond all batches makes it the base offset of the segment."
        ),
        kafka="LogSegment.readNextOffset",
        test="test_start_prediction.py",
    ),
    Rule(
        check_id="REC-13",
        title=(
            "Then leader epochs are truncated at both ends. The log start is the checkpoint or "
            "the first base (with remote storage the checkpoint as it is). Producer state is "
            "loaded up to the log end."
        ),
        kafka="LogLoader.load",
        test="test_partition.py",
    ),
    Rule(
        check_id="REC-14",
        title="Batches below the recovery point are never verified.",
        kafka="LogLoader.recoverLog",
        test="test_log_tail.py",
    ),
    Rule(
        check_id="REC-15",
        title="A partition without segments gets an empty one at its checkpointed log start.",
        kafka="LogLoader",
        test="broker/test_truncate.py",
    ),
    Rule(
        check_id="EPOCH-1",
        title=(
            "A new epoch is noted at the log end. All entries that are not lower than it, or do "
            "not begin lower, go; an invented high epoch in the file therefore costs good ones."
        ),
        kafka="LeaderEpochFileCache.assign",
        test="recovery/replicas/test_rejoin.py",
    ),
    Rule(
        check_id="EPOCH-2",
        title=(
            "A leader notes its epoch before any data. Followers and recovery note the epoch of a "
            "batch if it is higher than the last noted epoch."
        ),
        kafka="LeaderEpochFileCache",
        test="broker/test_replicas.py",
    ),
    Rule(
        check_id="EPOCH-3",
        title="An epoch may have no batches: every start of a leader adds one.",
        kafka="LeaderEpochFileCache",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="EPOCH-4",
        title="When the log start moves, the epoch in force there begins there.",
        kafka="LeaderEpochFileCache.truncateFromStartAsyncFlush",
        test="recovery/rebuild/test_derive.py",
    ),
    Rule(
        check_id="EPOCH-5",
        title="An epoch ends where the next higher one begins, the last one at the log end.",
        kafka="LeaderEpochFileCache.endOffsetFor",
        test="recovery/truncate/test_target.py",
    ),
    Rule(
        check_id="EPOCH-6",
        title=(
            "On loading, epochs are truncated at the log end and at the log start, and extended "
            "by the epochs of recovered batches. They are never made again."
        ),
        kafka="LogLoader",
        test="recovery/repair/test_broker_start.py",
    ),
    Rule(
        check_id="EPOCH-7",
        title=(
            "A follower truncates to where its last epoch that the leader knows ends on either of "
            "them; it asks again with a lower one until they agree. Without epochs it goes by the "
            "high watermark."
        ),
        kafka="AbstractFetcherThread.getOffsetTruncationState",
        test="recovery/truncate/test_target.py",
    ),
    Rule(
        check_id="EPOCH-8",
        title=(
            "Two logs agree below the end of their highest common epoch. Differences above the "
            "high watermark are legal."
        ),
        kafka="AbstractFetcherThread",
        test="recovery/truncate/test_target.py",
    ),
)

REPAIRING = (
    Rule(
        check_id="FIX-2",
        title=(
            "Indexes are rebuilt batch by batch with a counter that begins at 0 in each segment. "
            "Recovery writes them so, and so does a broker since 3.9.1 unless it opened the "
            "segment again."
        ),
        kafka="LogSegment.recover",
        test="test_log_tail.py",
    ),
    Rule(
        check_id="FIX-5",
        title=(
            "Truncating a tail truncates everything that refers to it: indexes, .txnindex, leader "
            "epochs, snapshots, recovery point, high watermark, cleaner's offset. The log start "
            "must not lie beyond it. Then the start must not take the stop for a clean stop."
        ),
        kafka="UnifiedLog.truncateTo",
        test="broker/test_truncate.py",
    ),
    Rule(
        check_id="FIX-6",
        title=(
            "A damaged stretch in the middle can be left out alone: offsets have a gap then, "
            "which consumers and replicas accept. Offsets are never given again."
        ),
        kafka="LogSegment",
        test="recovery/repair/test_salvage.py",
    ),
    Rule(
        check_id="FIX-7",
        title=(
            "Checkpoints are rewritten whole, with the lines of other partitions as they are. The "
            "line of a recovery point, a high watermark or a cleaner's offset may be missing. "
            "Without the line of a log start, deleted records return."
        ),
        kafka="CheckpointFile",
        test="broker/test_truncate.py",
    ),
    Rule(
        check_id="FIX-8",
        title=(
            "The marker of a clean stop may stay only if indexes are right, the recovery point is "
            "the log end, and a snapshot is there (SNP-3, SNP-4)."
        ),
        kafka="LogLoader",
        test="test_writer_state.py",
    ),
    Rule(
        check_id="FIX-9",
        title=(
            "A repaired replica holds nothing that contradicts the others below the high "
            "watermark; in doubt it is set aside and fetched again."
        ),
        kafka="ReplicaFetcherThread",
        test="cli/test_replicas.py",
    ),
)
