#!/bin/sh
# The main jobs of eoctl on a directory that a real Kafka 4.3.1 broker left when it was killed.
# Everything happens on a copy in a temporary directory. Ends with status 0 when each command ended
# with the status that it should.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
export PATH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
tar -xJf tests/golden/kafka-4.3.1.tar.xz -C "$work" crash clean 2>/dev/null ||
    python - "$work" <<'EOF' # no xz program here
import sys, tarfile
with tarfile.open("tests/golden/kafka-4.3.1.tar.xz") as archive:
    archive.extractall(sys.argv[1])
EOF
cd "$work"

# say TEXT: what is seen next and why it matters.
say() {
    printf '\n\n'
    printf '%s\n' "$@" | sed 's/^/# /'
}

# show STATUS COMMAND: run it as it stands there; it must end with STATUS.
show() {
    printf '\n$ %s\n' "$2"
    found=0
    sh -c "$2" 2>&1 || found=$?
    [ "$found" = "$1" ] || { echo "status $found instead of $1" >&2; exit 1; }
}

log=crash/txn-0/00000000000000000000.log

say "A broker was killed (kill -9) while transactions were open; this is its log directory." \
    "No broker runs here, and nothing below needs one. First the whole directory: where each" \
    "partition ends, how far consumers can read, how many transactions hold them back."
show 0 "eoctl describe crash | cut -f 1,2,6,8,9,17 | expand -t 21,32,48,69,94"

say "txn-0 and txn-1 have an open transaction: consumers with read_committed are stuck at the last" \
    "stable offset, though the log goes on behind it. What stands there? In txn-0 the batch at 311" \
    "is transactional, and no marker (isControl: true) of its producer follows it."
show 0 "eoctl dump-segment --offsets 310..328 $log | cut -d ' ' -f 1-4,11-14,17-20"

say "Who is producer 40? The coordinator's log knows its transactional id: an application to look at."
show 0 "eoctl dump-segment --transaction-log-decoder crash/__transaction_state-*/*.log |
    grep -o 'key: .*\"producerId\":40,.*' | tail -n 1"

say "The same log as data for other programs: a JSON object a line, every field with its unit."
show 0 "eoctl dump-segment --output jsonl --only-control $log | head -n 1"

say "Which records did transactions take back? Consumers with read_committed never saw these."
show 0 "eoctl dump-segment --only-aborted --print-data-log $log | grep payload | cut -c 1-110 | head -n 4"

say "The other files of a partition: aborted transactions and producer state, here of a clean stop." \
    "The text is kafka-dump-log's own, line for line: scripts that read it keep working."
show 0 "eoctl dump-segment clean/txn-0/00000000000000000000.txnindex | tail -n 2"
show 0 "eoctl dump-segment clean/txn-0/00000000000000000329.snapshot | tail -n 2"

say "Where does an offset lie? Segment, batch, byte position, and whether the indexes agree."
show 0 "eoctl locate --output jsonl crash/txn-0 --offset 300"

say "Now a byte of a batch changes, as on a bad disk. The checksum tells, and the status is 1, so that" \
    "a script notices. All batches before and behind it are read nevertheless."
show 0 "printf '\\001' | dd of=$log bs=1 seek=4500 conv=notrunc status=none"
show 1 "eoctl dump-segment $log >dump.txt"
show 0 "grep -c '^baseOffset' dump.txt; grep 'isvalid: false' dump.txt | cut -d ' ' -f 1-4,23-"
say "After a clean stop everything that a broker derives from the logs is there; after a crash some" \
    "of it is not. rebuild derives it from the .log files alone, byte for byte as the broker's own" \
    "recovery, and shows what differs on disk: nothing after the clean stop."
show 0 "eoctl rebuild clean/txn-0"

say "Here a time index is cut short and the snapshot lost. The look says so with status 1; --apply takes" \
    "the broker's lock, removes the clean marker (the next start shall verify) and writes only those two."
show 0 "truncate -s 36 clean/txn-0/00000000000000000000.timeindex
  rm clean/txn-0/00000000000000000329.snapshot"
show 1 "eoctl rebuild clean/txn-0"
show 0 "eoctl rebuild --apply clean/txn-0"

say "What will a broker know of its producers after its next start? Producer 40 has" \
    "a transaction open since offset 311: that is what holds the consumers back."
show 0 "eoctl recover-state clean/txn-0 | grep 'OptionalLong\['"

say "That transaction can be cut off. First the plan: each step, and the price. It removes the open" \
    "transaction, and 18 records that their producers believe to be safe. Then the deed; and because" \
    "what goes is kept beside the log directory, undo puts every byte and every time back."
show 0 "eoctl truncate clean/txn-0 --to-offset 311"
show 0 "eoctl truncate clean/txn-0 --to-offset 311 --apply | head -n 2"
show 1 "eoctl recover-state clean/txn-0 | grep -c 'OptionalLong\['"
show 0 "eoctl undo clean.eoctl/*-truncate-*"
show 0 "eoctl recover-state clean/txn-0 | grep -c 'OptionalLong\['"

say "Lines can be appended to a partition as an idempotent producer and its broker would: first the plan," \
    "with its price, then the deed. A real broker takes the directory over and clients read the records."
show 0 "printf 'one\ntwo\n' | eoctl produce clean/plain-0 --now 2026-11-21"
show 0 "printf 'one\ntwo\n' | eoctl produce clean/plain-0 --now 2026-11-21 --apply"
show 0 "eoctl dump-segment --print-data-log --offsets 179.. clean/plain-0/00000000000000000000.log | grep payload"

say "The audit reads any number of directories, on this machine's processes or on Spark: aborted and open" \
    "transactions, duplicates, gaps, replicas, right across segments. Who holds consumers back here?"
show 0 "eoctl spark-audit --report open --output jsonl clean 2>/dev/null | cut -c 1-240"

say "Records are read past whatever is damaged, as a read_committed consumer would be given them." \
    "export writes them all as Parquet or JSON Lines (pip install 'eoctl[parquet]')."
show 0 "eoctl consume clean/txn-0 --from 305 --isolation read_committed"
printf '\n\n# That was all; the copy is removed. More: eoctl --help, the README, and man/.\n'
