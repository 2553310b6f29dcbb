"""In which part of the help an option stands."""

from __future__ import annotations

from enum import StrEnum


class Panel(StrEnum):
    """The parts, in their order."""

    WHAT = "What"
    RECORDS = "Which records"
    OUTPUT = "Output"
    SAFETY = "Safety"
    ADVANCED = "Advanced"


# Everything else is what the command does.
_OPTIONS = {
    Panel.RECORDS: """
        topic offsets times from-offset to-offset from-time to-time from until isolation
        aborted-from key producer-id producer-epoch transactional-id only-control only-aborted
        since max-messages max-bytes max-transactions min-bytes older-than all
        skip-corrupt with-later max-lanes
        internal isolation-floor on-damage prefer diverged
    """,
    Panel.OUTPUT: """
        output picture columns utc color no-pager no-progress verbose limit fail-on segments report
        by-hour
        print-timestamp print-partition print-offset print-headers print-key key-separator bytes
        print-data-log deep-iteration skip-record-metadata show-secrets raw text codec
    """,
    Panel.SAFETY: """
        apply save-plan backup-dir no-backup i-accept-the-loss broker-is-stopped single-copy
        replicated all-replicas replica dry-run unclean exact force-overdue allow-remote
    """,
    Panel.ADVANCED: """
        now producer-expiry-ms metadata-dir coordinator-dir server-properties jobs io-limit engine
        master conf split-bytes checkpoint spill-dir memory key-file index-interval-bytes
        index-max-bytes segment-bytes topic-id leader-epoch coordinator-epoch fsync preallocate
        transaction-max-timeout-ms transaction-timeout-ms transaction-version max-message-size
        max-batch-bytes assume-hw cleanup-policy
        batch-bytes batch-messages batch-records block-size wait-ms in-flight fault acks-to
        base-sequence key-decoder-class value-decoder-class broker-version compare no-compare help
    """,
}
_PANELS = {name: panel for panel, names in _OPTIONS.items() for name in names.split()}
# Where an option is not what it is in other commands.
_OF_CALLS = {
    "produce": {
        "bytes": Panel.WHAT, "key-separator": Panel.WHAT, "producer-id": Panel.ADVANCED,
        "producer-epoch": Panel.ADVANCED, "transactional-id": Panel.WHAT,
    },
    "consume": {"checkpoint": Panel.WHAT},
    "copy": {"producer-id": Panel.ADVANCED},
    "locate": {"key": Panel.WHAT},
    "groups list": {"group": Panel.RECORDS},
    "groups describe": {"group": Panel.RECORDS},
    "groups export": {"group": Panel.RECORDS, "no-group-column": Panel.OUTPUT},
    "groups translate": {"group": Panel.RECORDS, "no-group-column": Panel.OUTPUT},
    "groups import": {
        "from": Panel.WHAT, "group": Panel.RECORDS, "skip-unknown": Panel.RECORDS,
        "consumers-are-stopped": Panel.SAFETY, "logs": Panel.ADVANCED,
    },
    "txn describe": {"producer-id": Panel.WHAT, "transactional-id": Panel.WHAT},
    "txn abort": {"producer-id": Panel.WHAT},
    "txn commit": {
        "producer-id": Panel.WHAT, "producer-epoch": Panel.WHAT, "transactional-id": Panel.WHAT,
    },
    "txn run": {"bytes": Panel.WHAT, "transactional-id": Panel.WHAT},
    "lease-pid acquire": {"topic": Panel.WHAT},
    "replicas": {"unclean": Panel.SAFETY},
    "sim init": {
        "topic": Panel.WHAT, "fsync": Panel.WHAT, "segment-bytes": Panel.ADVANCED,
    },
    "bench": {
        "all": Panel.WHAT,
        "in-flight": Panel.WHAT, "to": Panel.OUTPUT, "kafka-home": Panel.ADVANCED,
        "work-dir": Panel.ADVANCED, "first-port": Panel.ADVANCED, "java-option": Panel.ADVANCED,
        "setting": Panel.ADVANCED,
    },
    "sim explore": {"fsync": Panel.WHAT},
    "sim table": {"fsync": Panel.WHAT},
    "sim run": {"in-flight": Panel.WHAT, "batch-records": Panel.WHAT},
    "init": {"topic": Panel.WHAT, "broker-version": Panel.WHAT},
    "adopt": {
        "topic-id": Panel.WHAT, "broker-version": Panel.WHAT, "metadata-dir": Panel.WHAT,
    },
}  # fmt: skip


def panel_of(call: str, option: str) -> Panel:
    """Return where an option, named without its dashes, stands in the help of a call."""
    own = _OF_CALLS.get(call, {})
    return own.get(option) or _PANELS.get(option, Panel.WHAT)
