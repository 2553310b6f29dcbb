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
    echo "$*" | fold -s -w 78 | sed 's/^/# /'
}

# show STATUS COMMAND: run it as it stands there; it must end with STATUS.
show() {
    printf '\n$ %s\n' "$2"
    found=0
    sh -c "$2" 2>&1 || found=$?
    [ "$found" = "$1" ] || { echo "status $found instead of $1" >&2; exit 1; }
}

# What a person sees on a terminal of 80 columns, wherever this goes to.
COLUMNS=80 EOCTL_PAGER=cat
export COLUMNS EOCTL_PAGER
log=crash/txn-0/00000000000000000000.log

say "This is the log directory of a broker that was killed (kill -9) with open transactions." \
    "No broker runs here, and no command below needs a broker. Will it start, and what is lost?"
show 1 "eoctl check crash -o table"

say "read_committed consumers of txn-0 and txn-1 are stuck. Which transactions block them, since" \
    "when, and how do you end these transactions?"
show 1 "eoctl txn hanging crash -o table --columns topic,partition,transactional_id,verdict"

say "Which application wrote the open transaction, and where is it in the log?"
show 0 "eoctl locate crash/txn-0 --offset 311 -o table"
show 0 "eoctl txn describe --producer-id 40 crash -o table"

say "dump-segment prints the same lines as kafka-dump-log, so scripts that read them work."
show 0 "eoctl dump-segment --offsets 311..328 $log"

say "Now a byte of a batch changes, as on a bad disk. What would the next start of the broker lose?"
show 0 "printf '\\001' | dd of=$log bs=1 seek=4500 conv=notrunc status=none"
show 1 "eoctl check crash -o table"

say "The start would lose 246 records or more, for a bad batch of three records. repair compares the" \
    "strategies, shows the plan, and keeps the old bytes next to the log directory. undo restores them."
show 0 "eoctl repair crash -o table"
show 0 "eoctl repair crash/txn-0 --strategy salvage --apply -o table"
show 0 "eoctl undo crash -o table"

say "rebuild derives indexes and snapshots from the .log files alone, byte for byte as a broker. Here" \
    "a snapshot is lost, and rebuild writes it again."
show 0 "eoctl rebuild clean/txn-0 -o table"
show 0 "rm clean/txn-0/00000000000000000329.snapshot"
show 1 "eoctl rebuild clean/txn-0 -o table"
show 0 "eoctl rebuild clean/txn-0 --apply -o table"

say "produce appends lines as an idempotent producer and its broker would. A real broker accepts the" \
    "directory, and clients read the records."
show 0 "printf 'one\\ntwo\\n' | eoctl produce clean/plain-0 --now 2026-11-21 --apply -o table"
show 0 "eoctl consume clean/plain-0 --from 179"

say "Which records are lost, duplicated or aborted? For programs each row is an object."
show 0 "eoctl loss clean --topic txn -o table"
show 0 "eoctl duplicates clean/many-producers-0 -o table"
show 0 "eoctl spark-audit --report open -o table clean"
printf '\n\n# This is the end of the demo, and the copy is removed. See eoctl --help, the README, and man/.\n'
