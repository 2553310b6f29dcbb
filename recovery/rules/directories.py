"""The rules of log dirs, their checkpoints, and the leader epochs."""

from __future__ import annotations

from recovery.rules.findings import Rule, Severity

DIRECTORIES = (
    Rule(
        check_id="DIR-1",
        title="Every directory in a log dir is a partition or one that a broker makes.",
        severity=Severity.ERROR,
        broker="refuses to start",
        fix="Move the directory out of the log dir.",
        kafka="LogManager.loadLogs, UnifiedLog.parseTopicPartitionName",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="DIR-2",
        title="A partition is in one log dir of a node.",
        severity=Severity.ERROR,
        broker="refuses to start",
        fix="Keep the directory in the log dir that the metadata assign, move the other away.",
        excuse="Directories with -future, -stray or -delete in their names.",
        kafka="LogManager.loadLog",
        test="test_log_dirs.py",
    ),
    Rule(
        check_id="DIR-3",
        title=(
            "meta.properties is there and parses; all log dirs of a node agree on cluster and "
            "node, and each has an id of its own."
        ),
        severity=Severity.ERROR,
        broker="refuses to start, or takes the log dir offline",
        fix="Repair meta.properties by hand, from another log dir of the node.",
        excuse="A warning if only the given release refuses it.",
        kafka="MetaPropertiesEnsemble",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="DIR-4",
        title=(
            "partition.metadata is there, parses, and its topic id, partition and replicas match "
            "the cluster's metadata."
        ),
        severity=Severity.ERROR,
        broker=(
            "sets the directory aside as -stray, deletes it (before 3.7.1), or does not start "
            "with a damaged file"
        ),
        fix="Find out which topic the data belongs to before you change anything.",
        excuse=(
            "A note or a warning if the broker repairs it, or if newer metadata may explain it."
        ),
        kafka="PartitionMetadataFile, LogManager.isStrayReplica",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="DIR-5",
        title="Nothing is left over of an unfinished write: .cleaned, .swap, .deleted, .tmp.",
        severity=Severity.NOTE,
        broker="completes or removes it (REC-3, REC-4)",
        fix="None needed.",
        kafka="LogLoader.removeTempFilesAndCollectSwapFiles",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="DIR-6",
        title="No directory is set aside: -delete, -stray, -future.",
        severity=Severity.NOTE,
        broker=(
            "deletes a -delete directory, leaves a -stray one, and goes on to copy into a -future "
            "one, or renames it to the live name"
        ),
        fix="None needed; rescue what is in it before the start.",
        excuse=(
            "An error if nothing else has its records, if it takes the place of a longer "
            "directory, or if its live name is taken."
        ),
        kafka="LogManager.loadLog, LogManager.recoverAbandonedFutureLogs",
        test="test_log_dirs.py",
    ),
    Rule(
        check_id="DIR-7",
        title=(
            "A checkpoint file parses: version 0, as many entries as it says, every field a number."
        ),
        severity=Severity.ERROR,
        broker="takes the log dir offline or does not start, by file and fault (REC-2)",
        command="eoctl repair {} --strategy salvage",
        kafka="CheckpointFile",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="DIR-8",
        title="Partitions that checkpoints or metadata name have a directory.",
        severity=Severity.NOTE,
        broker="drops the line, or makes the replica again, empty",
        fix="None needed if the partition was meant to go.",
        excuse="A warning, or an error, where a replica that held data is gone.",
        kafka="LogManager, ReplicaManager",
        test="test_log_dirs.py",
    ),
    Rule(
        check_id="DIR-9",
        title="A file that is named like a file of a segment has a base offset of 20 digits.",
        severity=Severity.ERROR,
        broker="refuses to start",
        command="eoctl repair {} --strategy salvage",
        stops_start=True,
        kafka="LogFileUtils.offsetFromFileName, LogLoader",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="OFS-1",
        title="The checkpointed log start does not lie beyond the log.",
        severity=Severity.ERROR,
        broker="deletes all segments",
        command="eoctl repair {} --strategy salvage",
        at_start="deletes all segments",
        kafka="LogLoader.load",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="OFS-2",
        title="The recovery point does not lie beyond the log.",
        severity=Severity.NOTE,
        broker="takes the log end instead",
        command="eoctl repair {}",
        excuse="An error where what had been flushed is missing.",
        at_start="takes {} instead",
        kafka="LogManager",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="OFS-3",
        title="The high watermark does not lie beyond the log: what it covers was acknowledged.",
        severity=Severity.WARNING,
        broker="takes the log end instead",
        command="eoctl repair {}",
        excuse="An error where acknowledged records are shown to be missing.",
        at_start="takes {} instead",
        kafka="UnifiedLog.updateHighWatermark",
        test="planted/segments.py",
    ),
    Rule(
        check_id="OFS-4",
        title="The high watermark does not lie below the log start.",
        severity=Severity.NOTE,
        broker="takes the log start instead",
        fix="None needed.",
        kafka="UnifiedLog.updateHighWatermark",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="OFS-5",
        title="The cleaner's offset lies within the log.",
        severity=Severity.NOTE,
        broker="begins again at the log start",
        fix="None needed.",
        kafka="LogCleanerManager.cleanableOffsets",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="OFS-6",
        title="After a clean stop the recovery point is the log end.",
        severity=Severity.WARNING,
        broker="trusts the marker, and does not recover what was changed",
        fix="Remove .kafka_cleanshutdown, and the start verifies the log.",
        kafka="LogManager.checkpointLogRecoveryOffsets",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="EPC-1",
        title="Leader epochs and their start offsets rise, and none is negative.",
        severity=Severity.ERROR,
        broker=(
            "refuses to start with a negative epoch, else drops entries that contradict the "
            "newest (EPOCH-1)"
        ),
        command="eoctl rebuild {} --apply",
        kafka="LeaderEpochFileCache, EpochEntry",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="EPC-2",
        title="The last leader epoch does not begin beyond the log end.",
        severity=Severity.NOTE,
        broker="truncates it (EPOCH-6)",
        command="eoctl repair {} --strategy as-broker",
        kafka="LeaderEpochFileCache.truncateFromEndAsyncFlush",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="EPC-3",
        title="At the base offset of a batch its leader epoch is in force.",
        severity=Severity.ERROR,
        broker="leaves it as it is; as a follower it truncates at the wrong offset",
        command="eoctl rebuild {} --apply",
        excuse=(
            "A note below the first entry, where a crash undid a DeleteRecords (OFF-5), and for "
            "batches without an epoch."
        ),
        kafka="LeaderEpochFileCache.epochForOffset",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="EPC-4",
        title="The leader epochs are there where batches have epochs.",
        severity=Severity.WARNING,
        broker="goes by the high watermark when it truncates as a follower",
        command="eoctl rebuild {} --apply",
        kafka="LeaderEpochFileCache",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="EPC-5",
        title=(
            "A leader epoch has batches. No check reports it: every restart of a leader leaves an "
            "epoch without batches (EPOCH-3)."
        ),
        severity=Severity.NOTE,
        broker="nothing",
        command="eoctl rebuild {} --apply",
        kafka="LeaderEpochFileCache",
        test="planted/offsets.py",
    ),
    Rule(
        check_id="CSD-1",
        title=".kafka_cleanshutdown is empty or has both keys, with whole numbers.",
        severity=Severity.NOTE,
        broker="takes the stop for a clean stop; the broker epoch is lost",
        fix="None needed.",
        kafka="CleanShutdownFileHandler",
        test="planted/dirs.py",
    ),
    Rule(
        check_id="TXT-1",
        title="A text file is exactly what a broker would have written.",
        severity=Severity.NOTE,
        broker="reads it all the same",
        fix="None needed; look for another program that writes here, or for a flipped bit.",
        kafka="CheckpointFile, PropertiesUtils",
        test="test_checkpoint.py",
    ),
    Rule(
        check_id="JNL-1",
        title=(
            "A journal of eoctl is whole: every entry has its right checksum and none is missing."
        ),
        severity=Severity.ERROR,
        broker="ignores the file",
        fix="Look at the backups that the message names; eoctl journal shows the readable entries.",
        kafka="none: a file of eoctl",
        test="cli/test_journal.py",
    ),
    Rule(
        check_id="JNL-2",
        title="No change of eoctl is unfinished in a log dir.",
        severity=Severity.ERROR,
        broker="ignores it, and changes more",
        fix=(
            "eoctl apply or eoctl undo with the journal that the finding names, before a broker "
            "is started."
        ),
        excuse="A warning while somebody holds the lock: the change may be going on.",
        kafka="none: a file of eoctl",
        test="test_undo_every.py",
    ),
    Rule(
        check_id="JNL-3",
        title="No applied change of eoctl has lost acknowledged records of a log dir.",
        severity=Severity.ERROR,
        broker="knows nothing of it",
        fix=(
            "eoctl diff with the journal that the finding names prints which records are lost. "
            "Until a broker has run, eoctl undo restores them. eoctl journal remove deletes the "
            "backup."
        ),
        excuse=(
            "A warning where a partition was moved away and is not fetched yet; a note where "
            "nothing that was acknowledged is lost."
        ),
        kafka="none: a file of eoctl",
        test="cases/test_costs.py",
    ),
)
