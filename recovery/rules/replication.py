"""How the replicas of a partition keep together; nothing on the disk breaks these."""

from __future__ import annotations

from recovery.rules.findings import Rule

REPLICATION = (
    Rule(
        check_id="REPL-1",
        title=(
            "Only the leader takes records from producers; its log end is the end of what there is."
        ),
        kafka="ReplicaManager.appendRecords",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-2",
        title=(
            "A follower fetches from its log end on: by that its leader knows that it has all "
            "below. A fetch with less to be given than replica.fetch.min.bytes waits for "
            "replica.fetch.wait.max.ms at most."
        ),
        kafka="Replica.updateFetchStateOrThrow, DelayedFetch",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-3",
        title=(
            "The high watermark is the smallest log end of the in-sync replicas, of those that "
            "are being added (KIP-497) and of those that have caught up and are about to be. It "
            "never goes back while one leads, and from Kafka 3.7 on it waits while there are "
            "fewer of them than min.insync.replicas."
        ),
        kafka="Partition.maybeIncrementLeaderHW",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-4",
        title=(
            "A follower takes its leader's high watermark from a fetch response, at most its own "
            "log end: it knows of what is committed one fetch late."
        ),
        kafka="ReplicaFetcherThread.processPartitionData",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-5",
        title=(
            "A member that has not caught up for replica.lag.time.max.ms leaves the in-sync "
            "replicas; a follower that has all below the high watermark and reaches into its "
            "leader's epoch joins them. By time, not by records: the limit on records of releases "
            "before 0.9 threw out followers that kept up at every burst."
        ),
        kafka="Partition.maybeShrinkIsr, Partition.maybeExpandIsr",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-6",
        title=(
            "acks=all is answered when the high watermark has passed the batch, and refused "
            "before the append (NOT_ENOUGH_REPLICAS) or after it "
            "(NOT_ENOUGH_REPLICAS_AFTER_APPEND) while fewer than min.insync.replicas are in sync; "
            "acks=1 is answered by the leader alone, acks=0 by nobody."
        ),
        kafka="Partition.appendRecordsToLeader, DelayedProduce",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-7",
        title=(
            "Consumers are given what lies below the high watermark; with read_committed what lies "
            "below the last stable offset, beside the aborted transactions that reach into it: "
            "these they drop. Followers are given all."
        ),
        kafka="Partition.fetchRecords, UnifiedLog.fetchLastStableOffsetMetadata, CompletedFetch",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-8",
        title=(
            "The leader is the first in the order of the replicas that runs and is in sync, not "
            "the one with the longest log; the last one in sync stays so when it dies. A new "
            "leader, or none, raises the leader epoch, each change the partition epoch, and what "
            "a leader asks for in older epochs is refused."
        ),
        kafka="PartitionChangeBuilder, ReplicationControlManager.alterPartition",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-9",
        title=(
            "Where no replica that is in sync runs, another one leads only by an unclean "
            "election, allowed or asked for; what it lacks is lost."
        ),
        kafka="PartitionChangeBuilder",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-10",
        title=(
            "A follower names the leader epoch of its last batch with each fetch. Where that "
            "epoch ends earlier in the leader's log, or is not known there, it is told so, cuts "
            "its log, and asks again, until the two agree (KIP-101, KIP-279, KIP-595). A cut by "
            "the high watermark, as before 0.11, loses what was committed, or leaves two logs "
            "that differ."
        ),
        kafka="AbstractFetcherThread.truncateOnFetchResponse",
        test="test_running_log_real.py",
    ),
    Rule(
        check_id="REPL-11",
        title=(
            "With eligible leader replicas (KIP-966) a broker that was not stopped cleanly is "
            "taken out of those that may lead before it is let in: its disk may have forgotten "
            "what it was in sync with."
        ),
        kafka="ReplicationControlManager",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-12",
        title=(
            "A producer sends a batch again while it has no answer; with a producer id the leader "
            "knows it again by its sequence, and without one it may be there twice. What has no "
            "answer at the end may be there or not. A consumer that commits before it handles what "
            "it was given has lost it when it ends in between; one that commits after is given it "
            "again."
        ),
        kafka="Sender, TransactionManager, ConsumerCoordinator",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-13",
        title=(
            "A transaction is decided by a record of its coordinator, and its producer is answered "
            "then. Each partition of it is given a marker, which its leader acknowledges as with "
            "acks=all, again and again, whoever leads; the next transaction of the producer begins "
            "when all have one. The marker raises the epoch, so that what comes late is refused; "
            "a partition takes the first batch of a transaction once the coordinator knows of it "
            "(KIP-890)."
        ),
        kafka="TransactionCoordinator, TransactionMarkerChannelManager, AddPartitionsToTxnManager",
        test="test_transactions.py",
    ),
)
