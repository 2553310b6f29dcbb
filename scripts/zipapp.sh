#!/bin/sh
# Makes dist/eoctl.pyz: eoctl with all that it needs in one file, for hosts that have only Python.
#
# It runs on Linux of this machine's architecture with each of the PYTHONS (default 3.11 3.12 3.13,
# none of which need be here); "here" is the one of .venv alone, which is much quicker. The first
# start unpacks it below ~/.cache/pex, or PEX_ROOT.
set -eu
cd "$(dirname "$0")/.."

pythons=${PYTHONS:-3.11 3.12 3.13}
target=${1:-dist/eoctl.pyz}
bin=${BIN:-.venv/bin}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# Built from a copy, since building leaves files beside the sources.
mkdir "$work/source"
cp -R eoctl recovery storage man pyproject.toml README.md LICENSE "$work/source"
"$bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --no-index --wheel-dir "$work" "$work/source" </dev/null

# manylinux_2_28 is what numpy is built for: Debian 10, RHEL 8 and newer.
platforms=
for each in $pythons; do
    short=$(echo "$each" | tr -d .)
    [ "$each" = here ] ||
        platforms="$platforms --platform=manylinux_2_28_$(uname -m)-cp-$short-cp$short"
done
mkdir -p "$(dirname "$target")"
# shellcheck disable=SC2086 # a word for each platform
"$bin/pex" "$work"/eoctl-*.whl --constraints constraints.txt --use-pip-config --venv \
    --python-shebang '/usr/bin/env python3' --script eoctl --output-file "$target" $platforms
echo "$target"
