#!/bin/sh
# Makes the environment .venv with the pinned versions of constraints.txt.
#
#   scripts/setup-env.sh demo   what the commands need, without Spark
#   scripts/setup-env.sh all    also the tests and the linters
#
# Run again, it does nothing until the interpreter, the place, pyproject.toml or constraints.txt
# changes. PYTHON names the interpreter to use; the default is the first python3 that is new enough.
# Where cargo is, the native kernel (native/) is compiled too; eoctl works without it, only slower.
set -eu
cd "$(dirname "$0")/.."

scope=${1:-}
case $scope in
    demo) extras="" ;;
    all) extras="[spark,test,test-browser,dev]" ;;
    *) echo "usage: $0 demo|all" >&2; exit 2 ;;
esac

python=$(scripts/require-tool.sh venv)
venv=$PWD/.venv
# An environment knows its own path and its interpreter: when either is another one, it is made anew.
home="$venv $("$python" -c 'import sys; print(sys.version, sys.base_prefix)')"
key="$home $(cat pyproject.toml constraints.txt | sha256sum)"

# Python compiles what is imported, when it is; pip would compile all of it, 20 s for Spark's.
pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile \
        --constraint constraints.txt "$@" </dev/null
}

# Compiles the native kernel when its sources have changed. That it is not there is no failure.
make_native() {
    native_key="$home $(cat native/*.toml native/src/*.rs constraints.txt | sha256sum)"
    if [ -f .venv/eoctl-native ] && [ "$(cat .venv/eoctl-native)" = "$native_key" ]; then return; fi
    rm -f .venv/eoctl-native
    if ! command -v cargo >/dev/null; then
        echo "no cargo here: eoctl runs without its native kernel, which is slower" >&2
    else
        echo "compiling the native kernel (the first time takes a minute)" >&2
        mkdir -p .cache
        if pip_install maturin && (
            # pip looks for the builder on the PATH.
            PATH=$PWD/.venv/bin:$PATH
            export PATH CARGO_TARGET_DIR="$PWD/.cache/native"
            pip_install --no-build-isolation --no-deps --force-reinstall ./native
        ) >.cache/native.log 2>&1; then
            echo "$native_key" >.venv/eoctl-native
            return
        fi
        echo "it could not be compiled (.cache/native.log says why): eoctl runs without it" >&2
    fi
    # One of other sources must not stay.
    .venv/bin/python -m pip uninstall --quiet --yes eoctl-native >/dev/null 2>&1 || true
}

is_current() { [ -f ".venv/eoctl-$1" ] && [ "$(cat ".venv/eoctl-$1")" = "$key" ]; }
if is_current all || is_current "$scope"; then
    make_native
    exit 0
fi

found=$(.venv/bin/python -c 'import sys; print(sys.prefix, sys.version, sys.base_prefix)' \
    2>/dev/null </dev/null || true)
if [ "$found" != "$home" ]; then
    echo "making the environment .venv" >&2
    rm -rf .venv
    "$python" -m venv .venv
fi
rm -f .venv/eoctl-demo .venv/eoctl-all

echo "installing into .venv (the first time takes a few minutes)" >&2
# Building needs only setuptools, so it is pinned and installed like everything else.
pip_install setuptools
# The kernel compiles beside the packages: pip mostly waits for the disk.
make_native &
native=$!
pip_install --no-build-isolation --editable ".$extras" && status=0 || status=$?
wait $native
[ $status = 0 ] || exit $status
echo "$key" >".venv/eoctl-$scope"
