"""Two examples of each call, as `--help` and the man page show them; a test runs them.

In them `/var/lib/kafka` is a log dir; `orders` and `archive` are topics that are there.
"""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """What it is good for, and the call."""

    what: str
    call: str


_DIR = "/var/lib/kafka"
_LOG = "/var/lib/kafka/orders-0"
EXAMPLES: dict[str, tuple[Example, Example]] = {
    "": (
        Example("Will the broker start, and what is wrong", f"eoctl check {_DIR}"),
        Example("Which transactions hold consumers back", f"eoctl txn hanging {_DIR}"),
    ),
    "dump-segment": (
        Example("Every batch, as kafka-dump-log prints it", f"eoctl dump-segment {_LOG}"),
        Example(
            "Records with these offsets, with keys and values",
            f"eoctl dump-segment {_LOG} --offsets 100..120 --print-data-log",
        ),
    ),
    "init": (
        Example("What it would make", "eoctl init ./new --topic orders:12"),
        Example(
            "A log dir for a broker of an older release",
            "eoctl init ./new --topic orders:3 --broker-version 3.9 --apply",
        ),
    ),
    "adopt": (
        Example("What would be brought up, and what is lost", f"eoctl adopt {_DIR} --to ./new"),
        Example(
            "All of it, closed segments by a second name",
            f"eoctl adopt {_DIR} --to ./new --link --apply",
        ),
    ),
    "serve": (
        Example(
            "A dead broker's directory, to every Kafka client on this machine",
            f"eoctl serve {_DIR}",
        ),
        Example(
            "Past damage, and only what is committed",
            f"eoctl serve {_DIR} --on-damage skip --isolation-floor",
        ),
    ),
    "describe": (
        Example("Offsets, sizes and open transactions of a log dir", f"eoctl describe {_DIR}"),
        Example("As bars, with what is wrong where", f"eoctl describe {_DIR} --picture"),
    ),
    "check": (
        Example(
            "Will the broker start, and what does its start change",
            f"eoctl check {_DIR} --predict",
        ),
        Example("What a rule says", "eoctl check --explain BAT-1"),
    ),
    "report": (
        Example(
            "A page with timelines, to attach to an incident",
            f"eoctl report {_DIR} --to report.html",
        ),
        Example(
            "One topic, with pseudonyms, to show to strangers",
            f"eoctl report {_DIR} --topic orders --redact names --to public.html",
        ),
    ),
    "rebuild": (
        Example("What of the derived files is not as it should be", f"eoctl rebuild {_LOG}"),
        Example("Write them anew, with a way back", f"eoctl rebuild {_LOG} --apply"),
    ),
    "recover-state": (
        Example("The producers a broker would know after a start", f"eoctl recover-state {_LOG}"),
        Example("As they were at an offset", f"eoctl recover-state {_LOG} --at-offset 100"),
    ),
    "locate": (
        Example("Where an offset lies", f"eoctl locate {_LOG} --offset 100"),
        Example(
            "The first record from a time on",
            f"eoctl locate {_LOG} --timestamp 2026-11-20T09:00:00Z",
        ),
    ),
    "produce": (
        Example("Show what two lines would append", f"printf 'a\\nb\\n' | eoctl produce {_LOG}"),
        Example(
            "Append them to a topic, by key",
            f"printf 'k:a\\n' | eoctl produce {_DIR} --to-topic orders --key-separator : --apply",
        ),
    ),
    "consume": (
        Example(
            "What a consumer of committed records is given",
            f"eoctl consume {_LOG} --isolation read_committed",
        ),
        Example(
            "Some offsets with keys, as JSON Lines",
            f"eoctl consume {_LOG} --offsets 100..120 -o jsonl",
        ),
    ),
    "copy": (
        Example("Show what would be copied", f"eoctl copy {_LOG} /mnt/new/orders-0"),
        Example(
            "Copy all partitions of a topic",
            f"eoctl copy {_DIR} /mnt/new --to-topic orders --apply",
        ),
    ),
    "repair": (
        Example("What is damaged, and which way to mend it loses least", f"eoctl repair {_DIR}"),
        Example(
            "Keep every good batch, also behind damage",
            f"eoctl repair {_LOG} --strategy salvage --single-copy --apply",
        ),
    ),
    "truncate": (
        Example("What a cut at an offset would lose", f"eoctl truncate {_LOG} --to-offset 311"),
        Example(
            "Cut at the high watermark, as the only replica",
            f"eoctl truncate {_LOG} --to-hw --single-copy --apply",
        ),
    ),
    "groups": (
        Example("Which groups are behind, and by how much", f"eoctl groups list {_DIR}"),
        Example("Where one goes on", f"eoctl groups describe {_DIR} --group billing"),
    ),
    "groups list": (
        Example("Which groups are behind, and by how much", f"eoctl groups list {_DIR}"),
        Example("Of one topic, for a program", f"eoctl groups list {_DIR} --topic orders -o jsonl"),
    ),
    "groups describe": (
        Example("Every committed offset against its log", f"eoctl groups describe {_DIR}"),
        Example("Where one group goes on", f"eoctl groups describe {_DIR} --group billing"),
    ),
    "groups export": (
        Example("All committed offsets, as CSV", f"eoctl groups export {_DIR}"),
        Example(
            "Of one group, as kafka-consumer-groups --group takes them",
            f"eoctl groups export {_DIR} --group billing --no-group-column --to billing.csv",
        ),
    ),
    "groups translate": (
        Example(
            "Where each group goes on in the copies of another cluster",
            f"eoctl groups translate {_DIR} --copy /mnt/new",
        ),
        Example(
            "As a file that groups import takes",
            f"eoctl groups translate {_DIR} --copy /mnt/new --to /tmp/translated.csv",
        ),
    ),
    "groups import": (
        Example("What would be committed", f"eoctl groups import {_DIR} --from /tmp/offsets.csv"),
        Example(
            "Commit it, offsets beyond the end of a log at its end",
            f"eoctl groups import {_DIR} --from /tmp/offsets.csv --outside clamp --apply",
        ),
    ),
    "txn": (
        Example("What is open", f"eoctl txn list {_DIR}"),
        Example("What hangs, since when, and why", f"eoctl txn hanging {_DIR}"),
    ),
    "txn list": (
        Example("What is open", f"eoctl txn list {_DIR}"),
        Example(
            "As bars of time, with what has ended, of one topic",
            f"eoctl txn list {_DIR} --topic orders --all --picture",
        ),
    ),
    "txn describe": (
        Example("Who holds this producer id", f"eoctl txn describe {_DIR} --producer-id 40"),
        Example(
            "All that is known of a transactional id",
            f"eoctl txn describe {_DIR} --transactional-id billing",
        ),
    ),
    "txn hanging": (
        Example("What hangs, since when, and why", f"eoctl txn hanging {_DIR}"),
        Example("As seen when the log dir was written last", f"eoctl txn hanging {_DIR} --now dir"),
    ),
    "txn torn": (
        Example("Transactions that are committed only in part", f"eoctl txn torn {_DIR}"),
        Example(
            "Coordinators on another disk",
            f"eoctl txn torn {_LOG} --coordinator-dir {_DIR}",
        ),
    ),
    "txn stats": (
        Example("How many commits and aborts", f"eoctl txn stats {_DIR}"),
        Example("Of one topic, for a program", f"eoctl txn stats {_DIR} --topic orders -o jsonl"),
    ),
    "txn abort": (
        Example(
            "Show which marker would be written",
            f"eoctl txn abort {_LOG} --producer-id 40 --force-overdue",
        ),
        Example(
            "All that hang, in all partitions",
            f"eoctl txn abort {_DIR} --all-overdue --force-overdue --single-copy",
        ),
    ),
    "txn commit": (
        Example(
            "Show what would be written",
            f"eoctl txn commit {_DIR} --transactional-id open-1 --producer-id 40"
            " --producer-epoch 0 --single-copy",
        ),
        Example(
            "Commit it",
            f"eoctl txn commit {_DIR} --transactional-id open-1 --producer-id 40"
            " --producer-epoch 0 --single-copy --apply",
        ),
    ),
    "txn complete": (
        Example(
            "Show what the coordinator has left undone", f"eoctl txn complete {_DIR} --single-copy"
        ),
        Example("Do it", f"eoctl txn complete {_DIR} --single-copy --apply"),
    ),
    "txn run": (
        Example(
            "Show what a filter would write to another topic",
            f"eoctl txn run {_LOG} --to {_DIR} --to-topic archive"
            " --exec 'tr a-z A-Z' --transactional-id upper --group upper",
        ),
        Example(
            "Write it, ten records in a transaction",
            f"eoctl txn run {_LOG} --to {_DIR}/archive-0 --exec cat"
            " --transactional-id upper --group upper --format jsonl --txn-records 10 --apply",
        ),
    ),
    "replicas": (
        Example(
            "Where copies part, and what each leader would lose",
            "eoctl replicas compare /mnt/broker-1/orders-0 /mnt/broker-2/orders-0",
        ),
        Example(
            "Have one follow another",
            "eoctl replicas rejoin /mnt/broker-2/orders-0 --leader /mnt/broker-1/orders-0",
        ),
    ),
    "metadata": (
        Example("Who leads, who is in sync, what is set", f"eoctl metadata {_DIR}"),
        Example("Which failures each topic survives", f"eoctl metadata {_DIR} --durability"),
    ),
    "start-order": (
        Example(
            "Which broker first, and what each order of starting loses",
            "eoctl start-order /mnt/broker-1 /mnt/broker-2 /mnt/broker-3",
        ),
        Example(
            "What is lost if broker 3 does not come back",
            "eoctl start-order /mnt/broker-1 /mnt/broker-2 --gone 3",
        ),
    ),
    "bench": (
        Example("What acks and replicas cost, with 4 brokers here", "eoctl bench --scenario 3"),
        Example(
            "One cell, with its samples",
            "eoctl bench --scenario 1 --cell all-rf4-min2 --to ./samples",
        ),
    ),
    "apply": (
        Example("Apply a plan that was saved and read", "eoctl apply plan.json"),
        Example("Keep the old bytes elsewhere", "eoctl apply plan.json --backup-dir /mnt/backup"),
    ),
    "sim": (
        Example("A cluster of three brokers, with one topic", "eoctl sim init ./play"),
        Example(
            "Four brokers, and two that must be in sync",
            "eoctl sim init ./play --nodes 4 --replication-factor 4 --min-insync-replicas 2",
        ),
    ),
    "sim init": (
        Example("Three brokers, one topic", "eoctl sim init ./play"),
        Example(
            "As before Kafka 0.11: followers cut at the high watermark",
            "eoctl sim init ./play --truncation hw",
        ),
    ),
    "sim run": (
        Example(
            "What acks=1 loses when the power goes",
            "eoctl sim run ./play --acks 1 --faults 'power all at 50%' --seed 7",
        ),
        Example(
            "What serves after two deaths, and what helps",
            "eoctl sim run ./dead --script 2-both-dead",
        ),
    ),
    "sim table": (
        Example(
            "What can be lost with acks=all and one replica in sync, and how",
            "eoctl sim table --acks all --min-insync-replicas 1",
        ),
        Example(
            "Every cell of the matrix, for a program",
            "eoctl sim table -o jsonl",
        ),
    ),
    "sim scripts": (
        Example("Courses of events that are shipped", "eoctl sim scripts"),
        Example("Their names, for a program", "eoctl sim scripts -o jsonl"),
    ),
    "sim explore": (
        Example(
            "What acks=all with one replica in sync can lose",
            "eoctl sim explore --acks all --min-insync-replicas 1 --faults kill,power",
        ),
        Example(
            "Keep what was found, to repeat it",
            "eoctl sim explore --acks 1 --faults kill --witness loses.json",
        ),
    ),
    "sim check": (
        Example("Is anything lost, doubled, different", "eoctl sim check ./play"),
        Example(
            "What clients of a real cluster have recorded, and what its brokers have",
            "eoctl sim check --history history.jsonl --directory /var/lib/kafka",
        ),
    ),
    "undo": (
        Example("Could the last change be undone", f"eoctl undo {_DIR} --dry-run"),
        Example("Undo it", f"eoctl undo {_DIR}"),
    ),
    "journal": (
        Example("Which changes can be undone", f"eoctl journal list {_DIR}"),
        Example(
            "Which journals are older than a month",
            f"eoctl journal prune {_DIR} --older-than 30",
        ),
    ),
    "export": (
        Example("All records of a log dir, as Parquet", f"eoctl export {_DIR} --to /tmp/records"),
        Example(
            "A day of one topic, as JSON Lines",
            f"eoctl export {_DIR} --topic orders --format jsonl --to /tmp/day"
            " --times 2026-11-20..2026-11-21",
        ),
    ),
    "producers": (
        Example("How many producer ids there are, and their heap", f"eoctl producers {_DIR}"),
        Example("New ones by hour", f"eoctl producers {_DIR} --topic orders --by-hour"),
    ),
    "lease-pid": (
        Example("Who holds which producer id", f"eoctl lease-pid list {_DIR}"),
        Example(
            "A producer id for an application",
            f"eoctl lease-pid acquire {_DIR} --app-id billing --expiry-ms 60000 --single-copy",
        ),
    ),
    "lease-pid acquire": (
        Example(
            "A producer id for an application",
            f"eoctl lease-pid acquire {_DIR} --app-id billing --expiry-ms 60000 --single-copy",
        ),
        Example(
            "For appending to a partition",
            f"eoctl lease-pid acquire {_DIR} --app-id billing --expiry-ms 60000"
            " --topic orders --partition 0 --single-copy",
        ),
    ),
    "lease-pid renew": (
        Example(
            "One more minute",
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
            "Give it up",
            f"eoctl lease-pid release {_DIR} --app-id billing --generation 0 --single-copy",
        ),
        Example(
            "For a program",
            f"eoctl lease-pid release {_DIR} --app-id billing --generation 0"
            " --single-copy -o jsonl",
        ),
    ),
    "lease-pid list": (
        Example("Who holds which producer id", f"eoctl lease-pid list {_DIR}"),
        Example("For a program", f"eoctl lease-pid list {_DIR} -o jsonl"),
    ),
    "lease-pid expire": (
        Example(
            "Free what nobody can know any more", f"eoctl lease-pid expire {_DIR} --single-copy"
        ),
        Example(
            "Brokers with another expiry",
            f"eoctl lease-pid expire {_DIR} --single-copy --producer-expiry-ms 3600000",
        ),
    ),
    "duplicates": (
        Example("Which records are duplicated", f"eoctl duplicates {_DIR} --topic orders"),
        Example(
            "Records with the same key within an hour",
            f"eoctl duplicates {_LOG} --id key --window 1h",
        ),
    ),
    "loss": (
        Example("What is lost, aborted or duplicated", f"eoctl loss {_DIR}"),
        Example("Every aborted record, too", f"eoctl loss {_DIR} --limit 1000"),
    ),
    "diff": (
        Example("What a backup and a log dir do not have alike", f"eoctl diff /mnt/backup {_DIR}"),
        Example(
            "Only topics, settings and committed offsets",
            f"eoctl diff /mnt/backup {_DIR} --no-records",
        ),
    ),
    "spark-audit": (
        Example(
            "Everything about many directories, on this machine",
            f"eoctl spark-audit {_DIR} --engine local --report all",
        ),
        Example(
            "Transactions that are open, of one topic",
            f"eoctl spark-audit {_DIR} --topic orders --engine local --report open",
        ),
    ),
}
