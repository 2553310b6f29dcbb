#!/bin/sh
# Finds programs that come from outside and prints their paths on stdout, a line each.
#
#   scripts/require-tool.sh [--find] java|mvn|mandoc|zsh|fish|kcat|chromium|venv...
#
# If programs are missing, it installs all of them at once where it can (root, apt-get), and says on
# stderr which command installs the rest. With --find it only looks.
# Status 0: all found, 1: some are missing, 2: wrong arguments.
# "java" is Java 17 or later; "venv" is a Python 3.11 or later that can make environments.
set -u

java_major() {
    "$1" -version 2>&1 </dev/null |
        sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

find_java() {
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java)" /usr/lib/jvm/*/bin/java
    do
        [ -n "$candidate" ] && [ -x "$candidate" ] || continue
        major=$(java_major "$candidate")
        [ -n "$major" ] && [ "$major" -ge 17 ] && echo "$candidate" && return 0
    done
    return 1
}

find_venv() {
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3; do
        # The interpreter behind an activated environment: that environment may be replaced.
        base=$("$candidate" -c '
import ensurepip, sys, venv
if sys.version_info >= (3, 11): print(sys._base_executable or sys.executable)
' 2>/dev/null </dev/null) && [ -n "$base" ] && echo "$base" && return 0
    done
    return 1
}

find_tool() {
    case $1 in
        java) find_java ;;
        venv) find_venv ;;
        mvn | mandoc | zsh | fish | kcat) command -v "$1" ;;
        chromium) command -v chromium || command -v chromium-browser ;;
        *) echo "usage: $0 [--find] java|mvn|mandoc|zsh|fish|kcat|chromium|venv..." >&2; exit 2 ;;
    esac
}

describe() {
    case $1 in
        java) echo "Java 17 or later" ;;
        mvn) echo "Maven (mvn)" ;;
        mandoc | zsh | fish | kcat) echo "$1" ;;
        chromium) echo "Chromium" ;;
        venv) echo "Python 3.11 or later with venv and ensurepip" ;;
    esac
}

# The first of the packages that this distribution has; the first of all when that is not known.
first_known_package() {
    for package; do
        if apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; return; fi
    done
    echo "$1"
}

packages_of() {
    case $1 in
        java) first_known_package openjdk-17-jre-headless openjdk-21-jre-headless \
            openjdk-25-jre-headless default-jre-headless ;;
        mvn) echo maven ;;
        mandoc | zsh | fish | kcat | chromium) echo "$1" ;;
        venv) echo python3-venv ;;
    esac
}

only_look=
if [ "${1:-}" = --find ]; then only_look=yes; shift; fi
[ $# -gt 0 ] || set -- ""

missing=
for tool; do
    find_tool "$tool" || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0

names= packages=
for tool in $missing; do
    names="${names:+$names, }$(describe "$tool")"
    packages="$packages $(packages_of "$tool")"
done
if [ -z "$only_look" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "missing: $names. Installing with apt-get" >&2
    apt_get() {
        DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
            </dev/null >&2
    }
    apt_get update
    # One by one if a distribution does not have one of them.
    # shellcheck disable=SC2086 # a word for each package
    apt_get install -y --no-install-recommends $packages ||
        for package in $packages; do
            apt_get install -y --no-install-recommends "$package"
        done
fi
status=0
for tool in $missing; do
    [ -z "$only_look" ] && find_tool "$tool" && continue
    echo "$(describe "$tool") is missing. To install it:" \
        "apt-get install -y $(packages_of "$tool")" >&2
    status=1
done
exit $status
