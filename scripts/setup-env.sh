#!/bin/sh
# Makes the environment .venv with the pinned versions of constraints.txt.
#
#   scripts/setup-env.sh demo   what the commands need, without Spark
#   scripts/setup-env.sh all    also the tests and the linters
#
# Run again, it does nothing until the interpreter, the place, pyproject.toml, constraints.txt or the
# native kernel changes. PYTHON names the interpreter to use; the default is the first python3 that is
# new enough. cargo compiles the native kernel; without cargo eoctl works, but slower.
set -eu
cd "$(dirname "$0")/.."

scope=${1:-}
case $scope in
    demo) extras="" ;;
    all) extras="spark test test-browser dev" ;;
    *) echo "usage: $0 demo|all" >&2; exit 2 ;;
esac

python=$(scripts/require-tool.sh venv)
venv=$PWD/.venv
# An environment knows its own path and its interpreter: when either is another one, it is made anew.
home="$venv $("$python" -c 'import sys; print(sys.version, sys.base_prefix)')"
key="$home $(cat pyproject.toml constraints.txt | sha256sum)"
kernel_key="$key $(cat native/*.toml native/src/*.rs | sha256sum)"

# Python compiles what is imported, when it is; pip would compile all of it, 20 s for Spark's.
pip_install() {
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --no-compile \
        --constraint constraints.txt "$@" </dev/null
}

# Installs eoctl itself, whose build compiles the kernel. That there is no kernel is no failure.
install_eoctl() {
    has_cargo=$(command -v cargo || true)
    if [ -n "$has_cargo" ]; then
        echo "compiling the native kernel (the first time takes a minute)" >&2
    else
        echo "no cargo here: eoctl runs without its native kernel, which is slower" >&2
    fi
    mkdir -p .cache
    # A kernel of other sources must not stay.
    rm -f .venv/eoctl-kernel eoctl_native*.so
    CARGO_TARGET_DIR="$PWD/.cache/native" pip_install --verbose --no-build-isolation --no-deps \
        --editable . >.cache/native.log 2>&1 || { cat .cache/native.log >&2; return 1; }
    for kernel in eoctl_native*.so; do
        if [ -e "$kernel" ]; then
            echo "$kernel_key" >.venv/eoctl-kernel
        elif [ -n "$has_cargo" ]; then
            echo "it could not be compiled (.cache/native.log says why): eoctl runs without it" >&2
        fi
    done
}

is_current() { [ -f ".venv/eoctl-$1" ] && [ "$(cat ".venv/eoctl-$1")" = "$2" ]; }
if is_current all "$key" || is_current "$scope" "$key"; then
    is_current kernel "$kernel_key" || install_eoctl
    exit 0
fi

found=$(.venv/bin/python -c 'import sys; print(sys.prefix, sys.version, sys.base_prefix)' \
    2>/dev/null </dev/null || true)
# .venv/eoctl-native: an environment with a kernel that was a distribution of its own.
if [ "$found" != "$home" ] || [ -e .venv/eoctl-native ]; then
    echo "making the environment .venv" >&2
    rm -rf .venv
    "$python" -m venv .venv
fi
rm -f .venv/eoctl-demo .venv/eoctl-all

echo "installing into .venv (the first time takes a few minutes)" >&2
# The tools that build eoctl are pinned and installed like everything else.
pip_install --quiet setuptools setuptools-rust
# The kernel compiles beside the packages: pip mostly waits for the disk.
install_eoctl &
eoctl=$!
# shellcheck disable=SC2086 # a word for each extra
.venv/bin/python - $extras <<'END' >.venv/requirements.txt
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = [project["optional-dependencies"][name] for name in sys.argv[1:]]
print(*project["dependencies"], *sum(extras, []), sep="\n")
END
pip_install --quiet --requirement .venv/requirements.txt && status=0 || status=$?
wait $eoctl || status=$?
[ $status = 0 ] || exit $status
echo "$key" >".venv/eoctl-$scope"
