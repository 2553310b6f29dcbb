#!/bin/sh
# `make test`: the environment, Kafka's jars, then the tests with the linters beside them.
#
#   scripts/test.sh [PYTEST ARGUMENT...]
#
# Java, Maven, mandoc, zsh, fish, kcat and Chromium come from outside. Tests that need a missing one are
# left out, and pytest names them at its end; with EOCTL_REQUIRE=java,broker the run fails instead.
set -u
cd "$(dirname "$0")/.." || exit 1
started=$(date +%s)
lint_log=.cache/lint.log
mkdir -p .cache

# The jars come beside the packages: both wait for the network.
fetch() {
    scripts/require-tool.sh java mvn >/dev/null || :
    scripts/fetch-kafka-libs.sh &
    scripts/require-tool.sh mandoc zsh fish kcat chromium >/dev/null || :
    wait $!
}

after() { echo "$1: $(($(date +%s) - started)) s after the start" >&2; }

fetch &
fetching=$!
make --no-print-directory env || exit 1
wait $fetching || :
.venv/bin/python -m tests.kafka.classes || :
after "environment, kernel and jars are ready"

make --no-print-directory lint >$lint_log 2>&1 &
linting=$!
# Rewriting all asserts for better messages takes 50 s per process. Failed tests run again with them.
scripts/pytest.sh -n 2 --dist worksteal --hypothesis-profile=ci --assert=plain "$@"
status=$?
after "tests ended with status $status"
[ $status != 1 ] || .venv/bin/pytest --last-failed --last-failed-no-failures none \
    --hypothesis-profile=ci -q || :
wait $linting
linted=$?
cat $lint_log
after "linters ended with status $linted"
[ $status != 0 ] || status=$linted
exit $status
