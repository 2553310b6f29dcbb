"""The rules of producer snapshots, sequences and transactions."""

from __future__ import annotations

from recovery.rules.findings import Rule, Severity

PRODUCERS = (
    Rule(
        check_id="SNP-1",
        title="A .snapshot has version 1, a right checksum, and as many bytes as its entries take.",
        severity=Severity.ERROR,
        broker="deletes it, and reads more of the log",
        command="eoctl recover-state {} --apply",
        kafka="ProducerStateManager.readSnapshot",
        test="planted/producers.py",
    ),
    Rule(
        check_id="SNP-2",
        title="A snapshot is named by the base of a segment or by the log end.",
        severity=Severity.NOTE,
        broker="deletes it",
        fix="None needed.",
        excuse="Compacted topics, whose merged segments leave them behind.",
        kafka="ProducerStateManager.removeStraySnapshots",
        test="planted/producers.py",
    ),
    Rule(
        check_id="SNP-3",
        title="After a clean stop there is a snapshot at the log end.",
        severity=Severity.WARNING,
        broker="reads the log from the newest snapshot on",
        command="eoctl recover-state {} --apply",
        kafka="UnifiedLog.rebuildProducerState",
        test="planted/segments.py",
    ),
    Rule(
        check_id="SNP-4",
        title=(
            "A cleanly stopped partition with producers has a snapshot. Without any, a broker "
            "takes it for one of an old release."
        ),
        severity=Severity.ERROR,
        broker="starts with no producer known: duplicates pass, open transactions are forgotten",
        command="eoctl recover-state {} --apply",
        kafka="UnifiedLog.rebuildProducerState",
        test="planted/producers.py",
    ),
    Rule(
        check_id="SNP-5",
        title=(
            "The entries of a snapshot fit together: each producer once, epochs and offsets in "
            "bounds, sequence and offset unknown together."
        ),
        severity=Severity.ERROR,
        broker="takes the values as they are",
        command="eoctl rebuild {} --apply",
        excuse=(
            "Recovery leaves an entry with epoch -1 for the empty control batch of a producer it "
            "does not know."
        ),
        kafka="ProducerStateManager.loadFromSnapshot",
        test="test_producer_snapshot.py",
    ),
    Rule(
        check_id="SNP-6",
        title="A snapshot says what a replay of the log up to its offset says.",
        severity=Severity.WARNING,
        broker="takes what it says",
        command="eoctl rebuild {} --apply",
        is_normal_when_compacted=True,
        excuse=(
            "A note for producers whose batches are gone or have expired, or lie in a gap that "
            "another finding reports, and where a recovery writes the file again."
        ),
        kafka="ProducerStateManager",
        test="planted/producers.py",
    ),
    Rule(
        check_id="PRD-1",
        title="Within an epoch sequences continue, and a new epoch begins at 0.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None; says that batches were lost or that state had expired.",
        is_normal_when_compacted=True,
        excuse="The coordinators' topics. A note after damage that another finding reports.",
        kafka="ProducerAppendInfo.checkSequence",
        test="planted/producers.py",
    ),
    Rule(
        check_id="PRD-2",
        title="A producer's sequences are in the log once.",
        severity=Severity.WARNING,
        broker="nothing",
        fix="None; eoctl duplicates lists what consumers see twice.",
        excuse="The coordinators' topics.",
        kafka="ProducerStateEntry.findDuplicateBatch",
        test="planted/producers.py",
    ),
    Rule(
        check_id="PRD-3",
        title="The epoch of a producer never falls.",
        severity=Severity.WARNING,
        broker="logs it and goes on",
        fix="None.",
        kafka="ProducerAppendInfo.checkProducerEpoch",
        test="planted/producers.py",
    ),
    Rule(
        check_id="PRD-4",
        title="A producer with an open transaction writes no batch outside of it.",
        severity=Severity.ERROR,
        broker="does not load the log, and does not start, where it has to read the batch",
        command="eoctl repair {} --strategy salvage",
        stops_start=True,
        kafka="ProducerAppendInfo.appendDataBatch",
        test="planted/producers.py",
    ),
    Rule(
        check_id="PRD-5",
        title="The coordinator epoch in a producer's markers never falls.",
        severity=Severity.WARNING,
        broker="logs it and goes on",
        fix="None; often a sign of a zombie coordinator.",
        kafka="ProducerAppendInfo.checkCoordinatorEpoch",
        test="planted/producers.py",
    ),
    Rule(
        check_id="PRD-6",
        title="In a log that still has its first record, the first sequence of a producer is 0.",
        severity=Severity.NOTE,
        broker="nothing",
        fix="None; says that batches were lost, or never arrived. eoctl loss lists the sequences.",
        is_normal_when_compacted=True,
        excuse="The coordinators' topics. Behind damage that is reported elsewhere.",
        kafka="ProducerAppendInfo.checkSequence",
        test="planted/producers.py",
    ),
    Rule(
        check_id="TXO-1",
        title="No transaction is open at the end of the log.",
        severity=Severity.NOTE,
        broker="waits for its marker: read_committed consumers stop there",
        command="eoctl txn hanging {}",
        excuse=(
            "A warning once it has been open for longer than any coordinator waits, with no "
            "coordinator's record of it."
        ),
        kafka="TransactionStateManager",
        test="test_golden.py",
    ),
    Rule(
        check_id="TXO-2",
        title="A marker ends an open transaction.",
        severity=Severity.NOTE,
        broker="takes note of the epoch, and nothing else",
        fix="None needed.",
        is_normal_when_compacted=True,
        kafka="ProducerAppendInfo.appendEndTxnMarker",
        test="test_golden.py",
    ),
    Rule(
        check_id="TXO-3",
        title=(
            "A marker's epoch is not below the epoch of the transaction it ends: equal, or one "
            "more with transaction version 2 or a fenced producer (TXN-7)."
        ),
        severity=Severity.WARNING,
        broker="logs it and goes on",
        fix="None.",
        kafka="ProducerAppendInfo.checkProducerEpoch",
        test="planted/producers.py",
    ),
)
