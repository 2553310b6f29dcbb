"""How the replicas of a partition keep together; nothing on the disk breaks these."""

from __future__ import annotations

from recovery.rules.rule import Rule

REPLICATION = (
    Rule(
        check_id="REPL-2",
        title=(
            "A follower fetches from its log end on: by that its leader knows that it has all "
            "below."
        ),
        kafka="Replica.updateFetchStateOrThrow",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-3",
        title=(
            "The high watermark is the smallest log end of the in-sync replicas, of those that "
            "are being added (KIP-497) and of those that have caught up and are about to be. It "
            "never goes back while one leads, and from Kafka 4.0 on it waits while there are "
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
            "(NOT_ENOUGH_REPLICAS_AFTER_APPEND) while fewer than min.insync.replicas are in "
            "sync; acks=1 is answered by the leader alone, acks=0 by nobody."
        ),
        kafka="Partition.appendRecordsToLeader, DelayedProduce",
        test="test_leader.py",
    ),
    Rule(
        check_id="REPL-10",
        title=(
            "A follower names the leader epoch of its last batch with each fetch. Where that epoch "
            "ends earlier in the leader's log, or is not known there, it is told so, cuts its log, "
            "and asks again, until the two agree (KIP-101, KIP-279, KIP-595). A cut by the high "
            "watermark, as before 0.11, loses what was committed, or leaves two logs that differ."
        ),
        kafka="AbstractFetcherThread.truncateOnFetchResponse",
        test="test_rejoin_real.py",
    ),
)
