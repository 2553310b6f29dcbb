#!/bin/sh
# Makes reports of the golden directories, and pictures of their first screens, in .cache/report-demo.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
target=$root/.cache/report-demo
browser=$(scripts/require-tool.sh chromium)
rm -rf "$target"
mkdir -p "$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# picture NAME: what stands there after the script has drawn it.
picture() {
    "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars \
        --virtual-time-budget=5000 --window-size=1280,1100 \
        --screenshot="$target/$1.png" "file://$target/$1.html" 2>/dev/null
}

# report NAME ARCHIVE DIRECTORIES OF IT...: 1 says that there are findings.
report() {
    name=$1 archive=$2
    shift 2
    rm -rf kafka
    mkdir kafka
    tar -C kafka -xf "$root/tests/golden/$archive.tar.xz"
    if [ "$name" = broken ]; then (cd "$root" && .venv/bin/python -m tests.broken "$work/kafka/$1"); fi
    (cd kafka && "$root/.venv/bin/eoctl" report "$@" --now dir --title "$name" \
        --to "$target/$name.html") || [ $? = 1 ]
    picture "$name"
}

report crash kafka-4.3.1 crash
report clean kafka-4.3.1 clean
report hard kafka-4.3.1 hard
report tv2 kafka-4.3.1 tv2
report broken kafka-4.3.1 clean
report three-brokers kafka-4.3.1-three-brokers \
    diverged/broker-1 diverged/broker-2 diverged/broker-3
ls "$target"
