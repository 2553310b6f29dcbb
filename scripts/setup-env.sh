#!/bin/sh
# Makes the environment .venv with the pinned versions of constraints.txt.
#
#   scripts/setup-env.sh demo   what the commands need, without Spark
#   scripts/setup-env.sh all    also the tests and the linters
#
# Run again, it does nothing until the interpreter, the place, pyproject.toml or constraints.txt
# changes. PYTHON names the interpreter to use; the default is the first python3 that is new enough.
set -eu
cd "$(dirname "$0")/.."

scope=${1:-}
case $scope in
    demo) extras="" ;;
    all) extras="[spark,test,dev]" ;;
    *) echo "usage: $0 demo|all" >&2; exit 2 ;;
esac

python=$(scripts/require-tool.sh venv)
venv=$PWD/.venv
# An environment knows its own path and its interpreter: when either is another one, it is made anew.
home="$venv $("$python" -c 'import sys; print(sys.version, sys.base_prefix)')"
key="$home $(cat pyproject.toml constraints.txt | sha256sum)"

is_current() { [ -f ".venv/eoctl-$1" ] && [ "$(cat ".venv/eoctl-$1")" = "$key" ]; }
if is_current all || is_current "$scope"; then exit 0; fi

found=$(.venv/bin/python -c 'import sys; print(sys.prefix, sys.version, sys.base_prefix)' \
    2>/dev/null </dev/null || true)
if [ "$found" != "$home" ]; then
    echo "making the environment .venv" >&2
    rm -rf .venv
    "$python" -m venv .venv
fi
rm -f .venv/eoctl-demo .venv/eoctl-all

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
        --constraint constraints.txt "$@" </dev/null
}
echo "installing into .venv (the first time takes a few minutes)" >&2
# Building needs only setuptools, so it is pinned and installed like everything else.
pip_install setuptools
pip_install --no-build-isolation --editable ".$extras"
echo "$key" >".venv/eoctl-$scope"
