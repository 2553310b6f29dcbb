"""The rules of a broker's producer and transaction state. No finding breaks them."""

from __future__ import annotations

from recovery.rules.findings import Rule

STATE = (
    Rule(
        check_id="PROD-1",
        title="Batches of v2 with a producer id count, and no others.",
        kafka="ProducerStateManager",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-2",
        title=(
            "A client's batch with the epoch and sequences of one of the last five is a "
            "duplicate: it is answered and not written. After a start one batch is remembered."
        ),
        kafka="ProducerStateEntry.findDuplicateBatch",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-3",
        title=(
            "A broker refuses an epoch below the known epoch. Replication and loading only log it."
        ),
        kafka="ProducerAppendInfo.checkProducerEpoch",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-4",
        title=(
            "In a new epoch a client begins with sequence 0, else one above the last sequence; 0 "
            "follows 2147483647. An unknown producer may begin anywhere. The exception is a "
            "producer whose transaction of version 2 a coordinator has let begin there: it begins "
            "with 0."
        ),
        kafka="ProducerAppendInfo.checkSequence",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-5",
        title=(
            "A data batch of another epoch clears what was remembered. The first batch in a "
            "transaction opens it at its base offset."
        ),
        kafka="ProducerAppendInfo.appendDataBatch",
        test="planted/appending.py",
    ),
    Rule(
        check_id="PROD-6",
        title=(
            "A batch outside of the transaction that its producer has open is an error, while "
            "loading, too: the broker does not load the log."
        ),
        kafka="ProducerAppendInfo.appendDataBatch",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-7",
        title=(
            "A marker closes the producer's transaction. With an equal epoch sequences go on; "
            "with transaction version 2 the marker has one more, and they begin at 0."
        ),
        kafka="ProducerAppendInfo.appendEndTxnMarker",
        test="planted/appending.py",
    ),
    Rule(
        check_id="PROD-8",
        title=(
            "From 4.2 on a leader demands that a marker of transaction version 2 raises the epoch."
        ),
        kafka="ProducerAppendInfo.checkProducerEpoch",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="PROD-9",
        title=(
            "A control batch of a producer holds COMMIT or ABORT; another type is an error while "
            "loading. An empty control batch has no effect."
        ),
        kafka="EndTransactionMarker",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-10",
        title=(
            "A producer without an open transaction is forgotten once producer.id.expiration.ms "
            "has passed since its last record's timestamp; snapshots are filtered when they are "
            "read, not when they are written."
        ),
        kafka="ProducerStateManager.removeExpiredProducers",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-11",
        title="A producer that was forgotten may go on with any sequence.",
        kafka="ProducerAppendInfo.checkSequence",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-12",
        title=(
            "Coordinators write base sequence 0 always; rules of sequences do not hold in their "
            "topics."
        ),
        kafka="GroupCoordinator",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="PROD-13",
        title="How far the state goes is moved by batches without a producer id, too.",
        kafka="ProducerStateManager.updateMapEndOffset",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="SNAP-1",
        title=(
            "A snapshot is taken only if the state has gone beyond the newest snapshot. Its name "
            "is the next offset."
        ),
        kafka="ProducerStateManager.takeSnapshot",
        test="test_start_files.py",
    ),
    Rule(
        check_id="SNAP-2",
        title=(
            "Snapshots are taken on a roll, on a clean stop, after loading, after recovering a "
            "segment, and at the last two bases of a scan."
        ),
        kafka="ProducerStateManager",
        test="test_writer.py",
    ),
    Rule(
        check_id="SNAP-3",
        title=(
            "Snapshots at or below the log start, or beyond the log end, are deleted when state "
            "is loaded: the first segment has none as a rule."
        ),
        kafka="ProducerStateManager.truncateAndReload",
        test="cli/test_rebuild.py",
    ),
    Rule(
        check_id="SNAP-4",
        title=(
            "A cleanly stopped partition without any snapshot begins with an empty state, and "
            "nothing of the log is read."
        ),
        kafka="UnifiedLog.rebuildProducerState",
        test="planted/producers.py",
    ),
    Rule(
        check_id="SNAP-5",
        title=(
            "Snapshots that no segment base names go, but for the largest one if it is not below "
            "the last base."
        ),
        kafka="ProducerStateManager.removeStraySnapshots",
        test="cli/test_rebuild.py",
    ),
    Rule(
        check_id="SNAP-6",
        title=(
            "The newest snapshot that parses is loaded and the log is read from there. Without "
            "any the log is read from its start, except after a clean stop (SNAP-4)."
        ),
        kafka="ProducerStateManager.truncateAndReload",
        test="cli/test_recover_state.py",
    ),
    Rule(
        check_id="SNAP-7",
        title="A snapshot may know producers whose batches are gone. That is meant to be.",
        kafka="ProducerStateManager",
        test="recovery/truncate/test_plan.py",
    ),
    Rule(
        check_id="SNAP-8",
        title="Entries stand in the order in which a java.util.HashMap of their ids is walked.",
        kafka="ProducerStateManager.writeSnapshot",
        test="test_producer_state.py",
    ),
    Rule(
        check_id="SNAP-9",
        title=(
            "A recovery loads, for each segment, the newest snapshot up to its base, without "
            "expired producers. It replays the segment and writes a snapshot at its end. In the "
            "end the snapshots at a base offset, and the snapshot at the log end, are left."
        ),
        kafka="LogSegment.recover, LogLoader",
        test="cli/test_recover_state.py",
    ),
    Rule(
        check_id="SNAP-10",
        title="A clean stop and start change neither the newest snapshot nor its order.",
        kafka="ProducerStateManager",
        test="test_start_files.py",
    ),
    Rule(
        check_id="TXN-1",
        title=(
            "A transaction opens with the producer's first transactional data batch, at its base "
            "offset."
        ),
        kafka="ProducerAppendInfo",
        test="test_transactions.py",
    ),
    Rule(
        check_id="TXN-2",
        title=(
            "A marker ends the producer's open transaction; without one it ends nothing and "
            "leaves no entry in .txnindex."
        ),
        kafka="ProducerStateManager.completeTxn",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="TXN-3",
        title=(
            "A transaction is ongoing until its marker is written, and unreplicated until the "
            "high watermark has passed the marker."
        ),
        kafka="ProducerStateManager",
        test="test_transactions.py",
    ),
    Rule(
        check_id="TXN-4",
        title=(
            "The last stable offset is the smallest first offset of both kinds, not below the log "
            "start, if it is below the high watermark; else the high watermark."
        ),
        kafka="UnifiedLog.fetchLastStableOffsetMetadata",
        test="test_transactions.py",
    ),
    Rule(
        check_id="TXN-6",
        title=(
            ".txnindex has an entry for each aborted transaction, in the segment of its marker. "
            "The entry has the first offset of the earliest other ongoing transaction, or else "
            "the offset after the marker. Replicas may differ in it."
        ),
        kafka="ProducerStateManager.lastStableOffset",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="TXN-7",
        title=(
            "The marker has the epoch of the data, or one more where the coordinator fenced the "
            "producer or with transaction version 2; a used up epoch brings a new producer id."
        ),
        kafka="TransactionMetadata",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="TXN-9",
        title="A transaction may span segments; its entry is where its marker is.",
        kafka="LogSegment.updateTxnIndex",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="TXN-10",
        title=(
            "Batches of other producers, and batches without a transaction, may stand between the "
            "batches of a transaction."
        ),
        kafka="ProducerStateManager",
        test="test_writer_transactions.py",
    ),
    Rule(
        check_id="RC-2",
        title=(
            "A fetch in read_committed looks up aborted transactions up to the next entry of "
            ".index after the batches that it returns, or the next segment, or the log end."
        ),
        kafka="LocalLog.addAbortedTransactions",
        test="recovery/transactions/test_view.py",
    ),
    Rule(
        check_id="RC-3",
        title=(
            "From the segment of the fetch on entries are taken that touch the range, until one "
            "says that nothing behind it can."
        ),
        kafka="TransactionIndex.collectAbortedTxns",
        test="recovery/transactions/test_view.py",
    ),
    Rule(
        check_id="RC-4",
        title=(
            "A consumer holds a producer for aborted from the first offset of an entry to its "
            "ABORT marker, and drops its transactional batches; control batches are never given."
        ),
        kafka="CompletedFetch",
        test="recovery/transactions/test_view.py",
    ),
    Rule(
        check_id="RC-5",
        title=(
            "A transactional batch has the outcome of the next marker of its producer behind it; "
            "without one it is undecided. This holds on logs that are not compacted."
        ),
        kafka="UnifiedLog",
        test="recovery/transactions/test_view.py",
    ),
)
