"""The rules of `.index`, `.timeindex` and `.txnindex`."""

from __future__ import annotations

from recovery.rules.findings import Rule, Severity

INDEXES = (
    Rule(
        check_id="IDX-1",
        title=(
            "The length of an .index is a multiple of 8, and the length of a .timeindex is a "
            "multiple of 12."
        ),
        severity=Severity.ERROR,
        broker="nothing after a clean stop; else it derives the file again",
        command="eoctl rebuild {} --apply",
        kafka="AbstractIndex.sanityCheck",
        test="test_offset_index.py",
    ),
    Rule(
        check_id="IDX-2",
        title="The offsets and the positions of an .index rise, and none is negative.",
        severity=Severity.ERROR,
        broker="nothing after a clean stop; else it derives the file again",
        command="eoctl rebuild {} --apply",
        kafka="OffsetIndex",
        test="test_offset_index.py",
    ),
    Rule(
        check_id="IDX-3",
        title=(
            "An entry leads to the start of a batch from which its offset is found by reading on. "
            "Brokers up to 1.1, followers and the cleaner write the last offset of several "
            "batches (APP-8, COMP-10): that is right."
        ),
        severity=Severity.ERROR,
        broker="nothing after a clean stop; look-ups miss batches",
        command="eoctl rebuild {} --apply",
        kafka="OffsetIndex.lookup, LogSegment.translateOffset",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="IDX-4",
        title="No entry lies beyond the last offset of the segment.",
        severity=Severity.ERROR,
        broker="takes the base offset of the segment for the log end (REC-11)",
        command="eoctl rebuild {} --apply",
        at_start="takes {} for the log end",
        kafka="LogSegment.readNextOffset",
        test="planted/segments.py",
    ),
    Rule(
        check_id="IDX-5",
        title="Only an index that was open has zeros behind its entries.",
        severity=Severity.NOTE,
        broker="trims or rebuilds it",
        command="eoctl rebuild {} --apply",
        excuse=(
            "An error after a clean stop, where zeros would be taken for entries; none in the "
            "metadata log, which is recovered at each start."
        ),
        kafka="AbstractIndex.trimToValidSize",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="IDX-6",
        title="Entries are not further apart than the interval and a batch allow.",
        severity=Severity.NOTE,
        broker="nothing",
        command="eoctl rebuild {} --apply",
        fix="None needed.",
        is_normal_when_compacted=True,
        kafka="LogSegment.append",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TIM-1",
        title="The timestamps of a .timeindex rise and its offsets do not fall.",
        severity=Severity.ERROR,
        broker="nothing after a clean stop; else it derives the file again",
        command="eoctl rebuild {} --apply",
        kafka="TimeIndex.maybeAppend",
        test="test_time_index.py",
    ),
    Rule(
        check_id="TIM-2",
        title="No batch up to the offset of an entry has a later timestamp than the entry.",
        severity=Severity.ERROR,
        broker="nothing after a clean stop; a look-up by time skips records",
        command="eoctl rebuild {} --apply",
        kafka="TimeIndex.lookup",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TIM-3",
        title="The batch at the offset of an entry has its timestamp.",
        severity=Severity.WARNING,
        broker="nothing",
        command="eoctl rebuild {} --apply",
        fix="None needed; a rebuild makes it so.",
        is_normal_when_compacted=True,
        excuse="Messages of v0, which have no timestamp.",
        kafka="TimeIndex",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TIM-4",
        title="The last entry of a segment that is closed has its largest timestamp.",
        severity=Severity.WARNING,
        broker="nothing; retention by time goes by it",
        command="eoctl rebuild {} --apply",
        kafka="LogSegment.onBecomeInactiveSegment",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TXI-1",
        title="A .txnindex is whole: a multiple of 34 bytes, each entry of version 0.",
        severity=Severity.WARNING,
        broker=(
            "nothing after a clean stop; a segment of which the entries do not begin above its "
            "base is recovered"
        ),
        command="eoctl rebuild {} --apply",
        kafka="TransactionIndex",
        test="test_txn_index.py",
    ),
    Rule(
        check_id="TXI-2",
        title=(
            "The last offsets of a .txnindex rise and lie in its segment; a transaction does not "
            "begin behind its end."
        ),
        severity=Severity.ERROR,
        broker="recovers the segment where an entry ends below its base",
        command="eoctl rebuild {} --apply",
        excuse="Where a cleaner of 1.1.1 left only the marker both offsets are the same.",
        kafka="TransactionIndex.sanityCheck",
        test="test_txn_index.py",
    ),
    Rule(
        check_id="TXI-3",
        title="At the last offset of an entry stands an ABORT marker of that producer.",
        severity=Severity.ERROR,
        broker="nothing",
        command="eoctl rebuild {} --apply",
        excuse="A marker that compaction has taken is not missed.",
        kafka="TransactionIndex",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TXI-4",
        title=(
            "Every aborted transaction with data has an entry. If an entry is missing, "
            "read_committed consumers get aborted records."
        ),
        severity=Severity.ERROR,
        broker="nothing after a clean stop; a recovered segment gets its entries",
        command="eoctl rebuild {} --apply",
        excuse="Compacted logs whose data is gone.",
        kafka="ProducerStateManager.completeTxn",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TXI-5",
        title=(
            "No committed transaction has an entry. An entry of a committed transaction hides its "
            "records."
        ),
        severity=Severity.ERROR,
        broker="nothing after a clean stop; a recovered segment loses the entry",
        command="eoctl rebuild {} --apply",
        kafka="UnifiedLog.collectAbortedTransactions",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TXI-6",
        title="An entry begins where the first batch of its transaction begins.",
        severity=Severity.WARNING,
        broker="nothing",
        command="eoctl rebuild {} --apply",
        fix="eoctl rebuild writes it as recovery would.",
        is_normal_when_compacted=True,
        excuse="Transactions that begin below the log start.",
        kafka="TransactionIndex",
        test="planted/indexes.py",
    ),
    Rule(
        check_id="TXI-7",
        title=(
            "The last stable offset of an entry lies between 0 and the log end. Its value may "
            "differ from replica to replica (TXN-6)."
        ),
        severity=Severity.WARNING,
        broker="nothing",
        command="eoctl rebuild {} --apply",
        kafka="ProducerStateManager.lastStableOffset",
        test="planted/indexes.py",
    ),
)
