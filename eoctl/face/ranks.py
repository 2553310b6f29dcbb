"""Which columns of a report answer, in the order in which people see them: the one table of it.

The others come behind them as far as there is room. A report that is not here, or has other
columns, answers with all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

PLACE = ("topic", "partition")
# Kind of the report, as programs know it, and what answers. Where two reports are of one kind, the
# first one whose columns are all there counts.
RANKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # describe
    ("partition", (*PLACE, "verdict", "log_start_offset", "log_end_offset", "high_watermark",
                   "last_stable_offset", "open_transactions_count", "log_bytes")),
    ("segment", ("base_offset", "last_offset", "verdict", "records_count", "log_bytes",
                 "max_timestamp_ms")),
    ("remote_segment", ("start_offset", "end_offset", "state", "log_bytes", "max_timestamp_ms")),
    # check
    ("partition", (*PLACE, "errors", "warnings", "notes", "end_offset", "start_end_offset",
                   "start")),
    # recover-state, dump-segment
    ("producer", ("producer_id", "producer_epoch", "last_sequence", "last_offset",
                  "current_txn_first_offset", "timestamp_ms")),
    # locate
    ("location", (*PLACE, "offset", "timestamp_ms", "segment_base_offset", "batch_pos", "path")),
    # txn
    ("transaction", (*PLACE, "producer_id", "transactional_id", "first_offset", "state",
                     "verdict")),
    ("torn_transaction", ("why", "transactional_id", "producer_id", *PLACE, "committed_in",
                          "aborted_in", "open_in", "not_here")),
    ("transaction_stats", (*PLACE, "committed_count", "aborted_count", "open_count",
                           "last_stable_offset", "oldest_open_age_ms")),
    ("abort", (*PLACE, "producer_id", "transactional_id", "first_offset", "verdict", "applied")),
    ("commit", ("transactional_id", "producer_id", "producer_epoch", "status", "outcome",
                "applied")),
    ("marker", (*PLACE, "transactional_id", "first_offset", "records_count", "marker_offset",
                "applied")),
    ("transactional_id", ("transactional_id", "producer_id", "producer_epoch", "status",
                          "partitions", "last_update_timestamp_ms")),
    ("hanging", (*PLACE, "transactional_id", "verdict", "last_timestamp_ms",
                 "held_offsets_count", "first_offset")),
    # groups
    ("group", ("group", "type", "state", "members_count", "offsets_count", "lag_offsets",
               "outside_count", "last_commit_timestamp_ms")),
    ("committed_offset", ("group", *PLACE, "status", "committed_offset", "log_end_offset",
                          "lag_offsets", "place")),
    ("group_offset", ("group", *PLACE, "offset", "leader_epoch", "metadata",
                      "commit_timestamp_ms")),
    ("translated_offset", ("group", "source_topic", "source_partition", "source_offset", *PLACE,
                           "offset", "exactness")),
    ("imported_offset", ("group", *PLACE, "offset_before", "given_offset", "committed_offset",
                         "taken", "log_end_offset", "applied")),
    ("member", ("group", "client_id", "host", "assigned_partitions", "member_id")),
    # duplicates
    ("duplicate", ("kind", *PLACE, "first_base_offset", "first_last_offset", "repeat_base_offset",
                   "repeat_last_offset")),
    ("duplicate-group", ("kind", *PLACE, "copies_count", "key", "value", "offsets", "sessions")),
    # loss
    ("loss", ("kind", *PLACE, "base_offset", "last_offset", "first_key", "producer_id",
              "check_id")),
    ("partition", (*PLACE, "lost_offsets", "duplicate_records", "aborted_records",
                   "open_records", "unknown_records", "records")),
    ("recommendation", (*PLACE, "leader", "leader_epoch", "end_offset", "lost_records_count",
                        "lost_acknowledged_records_count")),
    ("change", ("kind", *PLACE, "offset", "key", "differences")),
    ("partition", (*PLACE, "gone", "changed", "new", "equal", "is_whole")),
    # bench
    ("cell", ("scenario", "cell", "records_per_s", "lowest_per_s", "highest_per_s", "ratio",
              "article_per_s", "article_ratio")),
    ("latency", ("scenario", "cell", "latency", "avg_us", "p50_us", "p99_us", "p99_99_us",
                 "max_us")),
    ("landed", ("cell", "acknowledged_count", "landed_count", "missing_count", "twice_count",
                "failed")),
    ("stretch", ("topic", "what", "partition", "first_sequence", "last_sequence",
                 "records_count")),
    ("relation", ("scenario", "holds", "relation", "figures")),
    # cluster-state
    ("cluster_change", ("timestamp_ms", "what", "leader", "isr", "why")),
    ("cluster_partition", (*PLACE, "leader", "isr", "replicas", "is_under_min_isr",
                           "leader_epoch", "high_watermark", "log_end_offset")),
    ("broker", ("broker", "state", "leaders_count", "replicas_count", "out_of_isr_count")),
    ("copy", (*PLACE, "broker", "standing", "log_end_offset", "high_watermark")),
    ("controller", ("controller", "is_voter", "is_leader")),
    ("setting", ("resource_name", "setting", "value", "source")),
    ("span", (*PLACE, "start_timestamp_ms", "duration_ms", "least_in_sync_count")),
    ("history_sum", (*PLACE, "changes_count", "elections_count", "unclean_count", "spans_count",
                     "under_min_isr_ms")),
    ("in_sync", ("standing", "leader", "isr", "leader_epoch", "start_timestamp_ms")),
    # advise
    ("order", ("order", "is_recommended", "led_at_first_count", "waits_count", "unclean_count",
               "lost_acknowledged_offsets_count", "lost_offsets_count")),
    ("step", ("step", "broker", "led_count", "writable_count", "asked_count")),
    ("partition", (*PLACE, "isr", "at_once", "unclean_only", "leads", "how", "writable_step")),
    ("choice", (*PLACE, "broker", "how", "lost_acknowledged_offsets_count",
                "lost_offsets_count", "lost_transactions_count", "from_broker")),
    ("topic", ("topic", "replicas_count", "survives_for_writes", "survives_for_data",
               "survives_power", "faults")),
    # producers
    ("partition", (*PLACE, "producers_count", "live_count", "expired_count",
                   "open_transactions_count", "heap_bytes")),
    ("topic", ("topic", "producers_count", "live_count", "expired_count",
               "open_transactions_count", "heap_bytes")),
    ("total", ("producers_count", "live_count", "expired_count", "open_transactions_count",
               "heap_bytes")),
    # what is written
    ("append", (*PLACE, "applied", "records", "bytes", "base_offset", "last_offset")),
    ("copy", (*PLACE, "applied", "records", "bytes", "base_offset", "last_offset", "compared")),
    ("transform", (*PLACE, "applied", "records_in", "records_out", "next_offset")),
    ("sink", (*PLACE, "records", "path")),
    ("export", (*PLACE, "records", "bytes", "skipped", "lost_offsets", "lost_records", "path")),
    # what is changed
    ("derived_file", ("partition", "file", "state", "written", "reason")),
    ("truncation", ("path", "target_offset", "log_end_offset", "end_after_restart", "applied")),
    ("repair", ("path", "strategy", "lost_offsets_count", "lost_records_count",
                "lost_ranges_count", "lost_bytes", "applied")),
    ("step", ("action", "file", "reason")),
    ("journal", ("plan_id", "status", "command", "applied_at_ms", "kept_bytes")),
    # spark-audit
    ("partition", (*PLACE, "records", "committed_transactions", "aborted_transactions",
                   "open_transactions", "duplicate_batches", "problems_count")),
    ("topic", ("topic", "records", "committed_transactions", "aborted_transactions",
               "open_transactions", "duplicate_batches")),
    ("producer", (*PLACE, "producer_id", "transactional_id", "records", "committed_transactions",
                  "aborted_transactions", "duplicate_batches")),
    ("transactional-id", ("transactional_id", "partitions_count", "records",
                          "committed_transactions", "aborted_transactions", "open_transactions")),
    ("open-transaction", (*PLACE, "first_offset", "producer_id", "transactional_id", "records",
                          "first_timestamp_ms", "holds_last_stable_offset")),
    ("violation", (*PLACE, "violation", "check_id", "offset", "producer_id", "expected", "found")),
    ("replica", (*PLACE, "is_equal", "first_different_offset", "broker", "other_broker")),
    ("corrupt-range", (*PLACE, "finding", "check_id", "start_pos", "end_pos", "reason")),
)  # fmt: skip


# What a row is, where the kind does not say it.
NOUNS = {"hanging": "hanging transaction", "step": "change"}


def noun_of(kind: str) -> str:
    """Return what a row of a report of a kind is, in words."""
    return NOUNS.get(kind, kind.replace("_", " ").replace("-", " "))


def answers_of(kind: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return the columns that answer, of a report of a kind; empty: all of them."""
    for name, answers in RANKS:
        if name == kind and all(each in columns for each in answers):
            return answers
    return ()
