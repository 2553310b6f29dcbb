"""Two examples for each command, as `--help` and the man page show them. A test runs them.

In them `/var/lib/kafka` is a log dir with the topics `orders` and `archive`.
"""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """A purpose, and the command for it."""

    what: str
    call: str


_DIR = "/var/lib/kafka"
_LOG = "/var/lib/kafka/orders-0"
EXAMPLES: dict[str, tuple[Example, Example]] = {
    "": (
        Example("See whether the broker will start, and what is wrong", f"eoctl check {_DIR}"),
        Example("List the transactions that block consumers", f"eoctl txn hanging {_DIR}"),
    ),
    "dump-segment": (
        Example("Print every batch as kafka-dump-log does", f"eoctl dump-segment {_LOG}"),
        Example(
            "Print records at these offsets, with keys and values",
            f"eoctl dump-segment {_LOG} --offsets 100..120 --print-data-log",
        ),
    ),
    "init": (
        Example("Show the plan", "eoctl init ./new --topic orders:12"),
        Example(
            "Create a log dir for a broker of an older release",
            "eoctl init ./new --topic orders:3 --broker-version 3.9 --apply",
        ),
    ),
    "adopt": (
        Example("Show the plan and the loss", f"eoctl adopt {_DIR} --to ./new"),
        Example(
            "Adopt everything, with links for closed segments",
            f"eoctl adopt {_DIR} --to ./new --link --apply",
        ),
    ),
    "serve": (
        Example(
            "Serve a dead broker's directory to Kafka clients on this machine",
            f"eoctl serve {_DIR}",
        ),
        Example(
            "Skip damage, and serve committed records only",
            f"eoctl serve {_DIR} --on-damage skip --isolation-floor",
        ),
    ),
    "describe": (
        Example("Show offsets, sizes and open transactions of a log dir", f"eoctl describe {_DIR}"),
        Example("Draw partitions as bars, with their faults", f"eoctl describe {_DIR} --picture"),
    ),
    "forecast": (
        Example("See what the broker deletes after its start", f"eoctl forecast {_DIR}"),
        Example(
            "Look 30 days ahead, with the broker's own settings",
            f"eoctl forecast {_DIR} --until 30d --output jsonl",
        ),
    ),
    "check": (
        Example(
            "See whether the broker will start, and what the start changes",
            f"eoctl check {_DIR} --predict",
        ),
        Example("Explain a rule", "eoctl check --explain BAT-1"),
    ),
    "report": (
        Example(
            "Write a page with timelines for an incident",
            f"eoctl report {_DIR} --to report.html",
        ),
        Example(
            "Write a page of one topic, with pseudonyms",
            f"eoctl report {_DIR} --topic orders --redact names --to public.html",
        ),
    ),
    "rebuild": (
        Example("Compare the derived files with the log", f"eoctl rebuild {_LOG}"),
        Example("Write the files that differ, with undo", f"eoctl rebuild {_LOG} --apply"),
    ),
    "recover-state": (
        Example(
            "Show the producers that a broker knows after its start", f"eoctl recover-state {_LOG}"
        ),
        Example("Show the producers at an offset", f"eoctl recover-state {_LOG} --at-offset 100"),
    ),
    "locate": (
        Example("Find an offset", f"eoctl locate {_LOG} --offset 100"),
        Example(
            "Find the first record from a time on",
            f"eoctl locate {_LOG} --timestamp 2026-11-20T09:00:00Z",
        ),
    ),
    "produce": (
        Example("Plan to append two lines", f"printf 'a\\nb\\n' | eoctl produce {_LOG}"),
        Example(
            "Append a record to a topic, by key",
            f"printf 'k:a\\n' | eoctl produce {_DIR} --to-topic orders --key-separator : --apply",
        ),
    ),
    "consume": (
        Example(
            "Print the records that a read_committed consumer gets",
            f"eoctl consume {_LOG} --isolation read_committed",
        ),
        Example(
            "Print a range of offsets with keys, as JSON Lines",
            f"eoctl consume {_LOG} --offsets 100..120 -o jsonl",
        ),
    ),
    "copy": (
        Example("Plan a copy of a partition", f"eoctl copy {_LOG} /mnt/new/orders-0"),
        Example(
            "Copy all partitions of a topic",
            f"eoctl copy {_DIR} /mnt/new --to-topic orders --apply",
        ),
    ),
    "repair": (
        Example("Show the damage, and compare the losses of each strategy", f"eoctl repair {_DIR}"),
        Example(
            "Keep every good batch, also after damage",
            f"eoctl repair {_LOG} --strategy salvage --single-copy --apply",
        ),
    ),
    "reclaim": (
        Example(
            "Show what costs nothing, and whether a start then has room", f"eoctl reclaim {_DIR}"
        ),
        Example(
            "Remove what the next start deletes, and old backups of eoctl",
            f"eoctl reclaim {_DIR} --class A,C --apply",
        ),
    ),
    "trim": (
        Example(
            "Show what the deletion of records below an offset frees and loses",
            f"eoctl trim {_LOG} --to-offset 100 --single-copy",
        ),
        Example(
            "Keep about 1 GiB of segments, with backups on another disk",
            f"eoctl trim {_LOG} --to-bytes 1G --single-copy --backup-dir ./backups",
        ),
    ),
    "truncate": (
        Example(
            "Show the loss of a truncation to an offset", f"eoctl truncate {_LOG} --to-offset 311"
        ),
        Example(
            "Truncate the only replica to the high watermark",
            f"eoctl truncate {_LOG} --to-hw --single-copy --apply",
        ),
    ),
    "groups": (
        Example("List groups and their lag", f"eoctl groups list {_DIR}"),
        Example(
            "Show the committed offsets of a group", f"eoctl groups describe {_DIR} --group billing"
        ),
    ),
    "groups list": (
        Example("List groups and their lag", f"eoctl groups list {_DIR}"),
        Example(
            "Select one topic, for a program", f"eoctl groups list {_DIR} --topic orders -o jsonl"
        ),
    ),
    "groups describe": (
        Example("Compare every committed offset with its log", f"eoctl groups describe {_DIR}"),
        Example(
            "Show the committed offsets of a group", f"eoctl groups describe {_DIR} --group billing"
        ),
    ),
    "groups export": (
        Example("Print all committed offsets as CSV", f"eoctl groups export {_DIR}"),
        Example(
            "Write the offsets of a group for kafka-consumer-groups --group",
            f"eoctl groups export {_DIR} --group billing --no-group-column --to billing.csv",
        ),
    ),
    "groups translate": (
        Example(
            "Translate the offsets of all groups to the copies in another cluster",
            f"eoctl groups translate {_DIR} --copy /mnt/new",
        ),
        Example(
            "Write the offsets to a file for groups import",
            f"eoctl groups translate {_DIR} --copy /mnt/new --to /tmp/translated.csv",
        ),
    ),
    "groups import": (
        Example("Plan an import", f"eoctl groups import {_DIR} --from /tmp/offsets.csv"),
        Example(
            "Commit, and move offsets beyond the end of a log to its end",
            f"eoctl groups import {_DIR} --from /tmp/offsets.csv --outside clamp --apply",
        ),
    ),
    "txn": (
        Example("List open transactions", f"eoctl txn list {_DIR}"),
        Example("List hanging transactions, with time and reason", f"eoctl txn hanging {_DIR}"),
    ),
    "txn list": (
        Example("List open transactions", f"eoctl txn list {_DIR}"),
        Example(
            "Draw open and ended transactions of a topic as bars of time",
            f"eoctl txn list {_DIR} --topic orders --all --picture",
        ),
    ),
    "txn describe": (
        Example(
            "Find the transactional id of a producer id",
            f"eoctl txn describe {_DIR} --producer-id 40",
        ),
        Example(
            "Show everything about a transactional id",
            f"eoctl txn describe {_DIR} --transactional-id billing",
        ),
    ),
    "txn hanging": (
        Example("List hanging transactions, with time and reason", f"eoctl txn hanging {_DIR}"),
        Example(
            "Use the time at which the log dir was last written",
            f"eoctl txn hanging {_DIR} --now dir",
        ),
    ),
    "txn torn": (
        Example("List transactions that are committed only in part", f"eoctl txn torn {_DIR}"),
        Example(
            "Read the coordinators from another log dir",
            f"eoctl txn torn {_LOG} --coordinator-dir {_DIR}",
        ),
    ),
    "txn stats": (
        Example("Count commits and aborts", f"eoctl txn stats {_DIR}"),
        Example(
            "Select one topic, for a program", f"eoctl txn stats {_DIR} --topic orders -o jsonl"
        ),
    ),
    "txn abort": (
        Example(
            "Show the marker to be written",
            f"eoctl txn abort {_LOG} --producer-id 40 --force-overdue",
        ),
        Example(
            "Plan to abort all hanging transactions in all partitions",
            f"eoctl txn abort {_DIR} --all-overdue --force-overdue --single-copy",
        ),
    ),
    "txn commit": (
        Example(
            "Plan a commit",
            f"eoctl txn commit {_DIR} --transactional-id open-1 --producer-id 40"
            " --producer-epoch 0 --single-copy",
        ),
        Example(
            "Commit the transaction",
            f"eoctl txn commit {_DIR} --transactional-id open-1 --producer-id 40"
            " --producer-epoch 0 --single-copy --apply",
        ),
    ),
    "txn complete": (
        Example(
            "Show the transactions that the coordinator has not completed",
            f"eoctl txn complete {_DIR} --single-copy",
        ),
        Example("Complete them", f"eoctl txn complete {_DIR} --single-copy --apply"),
    ),
    "txn run": (
        Example(
            "Plan to write the output of a filter to another topic",
            f"eoctl txn run {_LOG} --to {_DIR} --to-topic archive"
            " --exec 'tr a-z A-Z' --transactional-id upper --group upper",
        ),
        Example(
            "Write it, in transactions of ten records",
            f"eoctl txn run {_LOG} --to {_DIR}/archive-0 --exec cat"
            " --transactional-id upper --group upper --format jsonl --txn-records 10 --apply",
        ),
    ),
    "replicas": (
        Example(
            "Show where replicas diverge, and the loss for each leader",
            "eoctl replicas compare /mnt/broker-1/orders-0 /mnt/broker-2/orders-0",
        ),
        Example(
            "Plan how a replica follows another",
            "eoctl replicas rejoin /mnt/broker-2/orders-0 --leader /mnt/broker-1/orders-0",
        ),
    ),
    "metadata": (
        Example("Show leaders, ISR and settings", f"eoctl metadata {_DIR}"),
        Example("Show which failures each topic survives", f"eoctl metadata {_DIR} --durability"),
    ),
    "start-order": (
        Example(
            "Choose the first broker, and show the loss of each start order",
            "eoctl start-order /mnt/broker-1 /mnt/broker-2 /mnt/broker-3",
        ),
        Example(
            "Show the loss if broker 3 does not return",
            "eoctl start-order /mnt/broker-1 /mnt/broker-2 --gone 3",
        ),
    ),
    "bench": (
        Example("Measure the cost of acks and replicas with 4 brokers", "eoctl bench --scenario 3"),
        Example(
            "Run one cell, and save its samples",
            "eoctl bench --scenario 1 --cell all-rf4-min2 --to ./samples",
        ),
    ),
    "apply": (
        Example("Apply a saved plan", "eoctl apply plan.json"),
        Example(
            "Keep the old bytes on another disk", "eoctl apply plan.json --backup-dir /mnt/backup"
        ),
    ),
    "sim": (
        Example("Create a cluster of three brokers with one topic", "eoctl sim init ./play"),
        Example(
            "Create four brokers, with two required in sync",
            "eoctl sim init ./play --nodes 4 --replication-factor 4 --min-insync-replicas 2",
        ),
    ),
    "sim init": (
        Example("Create three brokers with one topic", "eoctl sim init ./play"),
        Example(
            "Use the rule before Kafka 0.11: followers truncate to the high watermark",
            "eoctl sim init ./play --truncation hw",
        ),
    ),
    "sim run": (
        Example(
            "Show what acks=1 loses in a power failure",
            "eoctl sim run ./play --acks 1 --faults 'power all at 50%' --seed 7",
        ),
        Example(
            "Show what works after two broker deaths, and what helps",
            "eoctl sim run ./dead --script 2-both-dead",
        ),
    ),
    "sim table": (
        Example(
            "Show the losses with acks=all and one replica in sync",
            "eoctl sim table --acks all --min-insync-replicas 1",
        ),
        Example(
            "Print every cell of the matrix, for a program",
            "eoctl sim table -o jsonl",
        ),
    ),
    "sim scripts": (
        Example("List the packaged scenarios", "eoctl sim scripts"),
        Example("List their names, for a program", "eoctl sim scripts -o jsonl"),
    ),
    "sim explore": (
        Example(
            "Search for losses with acks=all and one replica in sync",
            "eoctl sim explore --acks all --min-insync-replicas 1 --faults kill,power",
        ),
        Example(
            "Save the scenario that was found",
            "eoctl sim explore --acks 1 --faults kill --witness loses.json",
        ),
    ),
    "sim check": (
        Example("See whether records are lost, duplicated or different", "eoctl sim check ./play"),
        Example(
            "Check the recorded history of a real cluster with its log dirs",
            "eoctl sim check --history history.jsonl --directory /var/lib/kafka",
        ),
    ),
    "undo": (
        Example("See whether the last change can be undone", f"eoctl undo {_DIR} --dry-run"),
        Example("Undo the last change", f"eoctl undo {_DIR}"),
    ),
    "journal": (
        Example("List the changes that can be undone", f"eoctl journal list {_DIR}"),
        Example(
            "List journals older than a month",
            f"eoctl journal prune {_DIR} --older-than 30",
        ),
    ),
    "export": (
        Example(
            "Export all records of a log dir as Parquet", f"eoctl export {_DIR} --to /tmp/records"
        ),
        Example(
            "Export a day of a topic as JSON Lines",
            f"eoctl export {_DIR} --topic orders --format jsonl --to /tmp/day"
            " --times 2026-11-20..2026-11-21",
        ),
    ),
    "releases": (
        Example("Before an upgrade or a downgrade", "eoctl releases /var/lib/kafka"),
        Example("Does 4.3 start?", "eoctl releases /var/lib/kafka --broker-version 4.3"),
    ),
    "producers": (
        Example("Count producer ids and their heap", f"eoctl producers {_DIR}"),
        Example(
            "Count new producer ids by hour", f"eoctl producers {_DIR} --topic orders --by-hour"
        ),
    ),
    "lease-pid": (
        Example("List the holders of producer ids", f"eoctl lease-pid list {_DIR}"),
        Example(
            "Lease a producer id to an application",
            f"eoctl lease-pid acquire {_DIR} --app-id billing --expiry-ms 60000 --single-copy",
        ),
    ),
    "lease-pid acquire": (
        Example(
            "Lease a producer id to an application",
            f"eoctl lease-pid acquire {_DIR} --app-id billing --expiry-ms 60000 --single-copy",
        ),
        Example(
            "Lease a producer id for a partition",
            f"eoctl lease-pid acquire {_DIR} --app-id billing --expiry-ms 60000"
            " --topic orders --partition 0 --single-copy",
        ),
    ),
    "lease-pid renew": (
        Example(
            "Extend the lease by a minute",
            f"eoctl lease-pid renew {_DIR} --app-id billing --generation 0"
            " --expiry-ms 60000 --single-copy",
        ),
        Example(
            "Wait up to a second for the lock",
            f"eoctl lease-pid renew {_DIR} --app-id billing --generation 0"
            " --expiry-ms 60000 --single-copy --wait-ms 1000",
        ),
    ),
    "lease-pid release": (
        Example(
            "Release the lease",
            f"eoctl lease-pid release {_DIR} --app-id billing --generation 0 --single-copy",
        ),
        Example(
            "For a program",
            f"eoctl lease-pid release {_DIR} --app-id billing --generation 0"
            " --single-copy -o jsonl",
        ),
    ),
    "lease-pid list": (
        Example("List the holders of producer ids", f"eoctl lease-pid list {_DIR}"),
        Example("For a program", f"eoctl lease-pid list {_DIR} -o jsonl"),
    ),
    "lease-pid expire": (
        Example(
            "Free ids that no producer state knows", f"eoctl lease-pid expire {_DIR} --single-copy"
        ),
        Example(
            "Use another expiry of the broker",
            f"eoctl lease-pid expire {_DIR} --single-copy --producer-expiry-ms 3600000",
        ),
    ),
    "duplicates": (
        Example("List duplicate records", f"eoctl duplicates {_DIR} --topic orders"),
        Example(
            "List records with the same key within an hour",
            f"eoctl duplicates {_LOG} --id key --window 1h",
        ),
    ),
    "loss": (
        Example("List lost, aborted and duplicate records", f"eoctl loss {_DIR}"),
        Example("Also list aborted records", f"eoctl loss {_DIR} --limit 1000"),
    ),
    "diff": (
        Example("Compare a backup with a log dir", f"eoctl diff /mnt/backup {_DIR}"),
        Example(
            "Compare only topics, settings and committed offsets",
            f"eoctl diff /mnt/backup {_DIR} --no-records",
        ),
    ),
    "spark-audit": (
        Example(
            "Write all reports on this machine",
            f"eoctl spark-audit {_DIR} --engine local --report all",
        ),
        Example(
            "List the open transactions of a topic",
            f"eoctl spark-audit {_DIR} --topic orders --engine local --report open",
        ),
    ),
}
