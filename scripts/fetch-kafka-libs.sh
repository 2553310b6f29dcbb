#!/bin/sh
# Fills .cache/kafka-libs with the jars that tests/kafka/pom.xml names, through Maven; does nothing
# when they are there. Status 0: they are there, 1: they are not, and stderr says why.
set -u
cd "$(dirname "$0")/.." || exit 1

pom=tests/kafka/pom.xml
libs=.cache/kafka-libs
stamp=$libs/pom.sha256
if [ -f "$stamp" ] && [ "$(sha256sum <"$pom")" = "$(cat "$stamp")" ]; then exit 0; fi

mvn=$(scripts/require-tool.sh mvn) || exit 1
mkdir -p .cache
log=.cache/maven.log

copy_jars() {
    rm -rf "$libs.new"
    "$mvn" --batch-mode --no-transfer-progress --file "$pom" \
        dependency:copy-dependencies dependency:copy@older-client \
        "-DoutputDirectory=$PWD/$libs.new" \
        </dev/null >"$log" 2>&1 &&
        ls "$libs.new"/kafka_2.13-*.jar "$libs.new"/older-client/*.jar >/dev/null 2>&1
}

echo "fetching Kafka's jars through Maven into $libs" >&2
if copy_jars || { echo "Maven failed, trying once more" >&2; sleep 5; copy_jars; }; then
    rm -rf "$libs"
    mv "$libs.new" "$libs"
    sha256sum <"$pom" >"$stamp"
    exit 0
fi
tail -n 30 "$log" >&2
echo "Maven could not fetch Kafka's jars (its output: $log)" >&2
exit 1
