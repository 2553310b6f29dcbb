"""The rules of how the replicas of a partition stay in sync. No finding on disk breaks them."""

from __future__ import annotations

from recovery.rules.findings import Rule

REPLICATION = (
    Rule(
        check_id="REPL-1",
        title=(
            "Only the leader takes records from producers; its log end is the end of the partition."
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
            "The high watermark is the smallest log end of the replicas in sync. Replicas that "
            "are being added to the ISR (KIP-497), and replicas that have caught up and are about "
            "to be added, count too. It never falls while the same broker leads. From Kafka 3.7 "
            "on it does not move while the ISR is smaller than min.insync.replicas."
        ),
        kafka="Partition.maybeIncrementLeaderHW",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-4",
        title=(
            "A follower takes its leader's high watermark from a fetch response, at most its own "
            "log end. It therefore learns one fetch late which records are committed."
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
            "acks=all is answered when the high watermark has passed the batch. While fewer than "
            "min.insync.replicas are in sync, it is refused before the append "
            "(NOT_ENOUGH_REPLICAS) or after it (NOT_ENOUGH_REPLICAS_AFTER_APPEND). acks=1 is "
            "answered by the leader alone, acks=0 by nobody."
        ),
        kafka="Partition.appendRecordsToLeader, DelayedProduce",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-7",
        title=(
            "Consumers get the records below the high watermark. With read_committed they get the "
            "records below the last stable offset, and a list of the aborted transactions among "
            "them, which they drop. Followers get everything."
        ),
        kafka="Partition.fetchRecords, UnifiedLog.fetchLastStableOffsetMetadata, CompletedFetch",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-8",
        title=(
            "The leader is the first in the order of the replicas that runs and is in sync, not "
            "the replica with the longest log. The last replica in sync stays in the ISR when it "
            "dies. A new leader, or no leader, raises the leader epoch, and each change raises "
            "the partition epoch. Requests of a leader with an older epoch are refused."
        ),
        kafka="PartitionChangeBuilder, ReplicationControlManager.alterPartition",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-9",
        title=(
            "If no replica in sync runs, another replica leads only by an unclean election, "
            "allowed or requested. Records that it lacks are lost."
        ),
        kafka="PartitionChangeBuilder",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-10",
        title=(
            "A follower names the leader epoch of its last batch with each fetch. If that epoch "
            "ends earlier in the leader's log, or is unknown there, the leader answers so. The "
            "follower then truncates its log and asks again, until the two agree (KIP-101, "
            "KIP-279, KIP-595). A truncation to the high watermark, as before 0.11, loses "
            "committed records, or leaves two logs that differ."
        ),
        kafka="AbstractFetcherThread.truncateOnFetchResponse",
        test="test_running_log_real.py",
    ),
    Rule(
        check_id="REPL-11",
        title=(
            "With eligible leader replicas (KIP-966) a broker that was not stopped cleanly is "
            "removed from the eligible leaders before it may register. Its disk may lack records "
            "that it had acknowledged."
        ),
        kafka="ReplicationControlManager",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-12",
        title=(
            "A producer sends a batch again while it has no answer. With a producer id the leader "
            "recognizes it by its sequence, without a producer id it may be written twice. A "
            "batch without an answer at the end may be in the log or not. A consumer that commits "
            "before it handles its records loses them if it ends in between. A consumer that "
            "commits afterwards gets them again."
        ),
        kafka="Sender, TransactionManager, ConsumerCoordinator",
        test="test_replication_rules.py",
    ),
    Rule(
        check_id="REPL-13",
        title=(
            "A record of its coordinator decides a transaction, and the coordinator then answers "
            "the producer. The coordinator sends a marker to each partition of it until its "
            "leader acknowledges the marker as with acks=all, also across changes of leader. The "
            "next transaction of the producer begins when all partitions have a marker. The "
            "marker raises the epoch, so that late batches are refused. A partition takes the "
            "first batch of a transaction once the coordinator knows of it (KIP-890)."
        ),
        kafka="TransactionCoordinator, TransactionMarkerChannelManager, AddPartitionsToTxnManager",
        test="test_transactions.py",
    ),
)
