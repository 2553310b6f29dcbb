#!/bin/sh
# The linters and the types, in the environment .venv.
cd "$(dirname "$0")/.." || exit 1
status=0
.venv/bin/ruff check . || status=1
.venv/bin/ruff format --check . || status=1
.venv/bin/mypy || status=1
! cargo fmt --version >/dev/null 2>&1 || cargo fmt --manifest-path native/Cargo.toml --check || status=1
exit $status
