#!/bin/sh
# Makes what is released, into dist/ or the directory that DIST names.
#
#   scripts/dist.sh [STEP...]     the steps, in this order; without any, all but the image:
#
#   sdist    eoctl-VERSION.tar.gz      the sources that pip can install
#   wheel    eoctl-VERSION-*.whl       for Python 3.11 and later and glibc 2.28 and later, with the kernel
#   zipapp   eoctl.pyz                 one file for hosts that have only one of the PYTHONS
#   deb      eoctl_VERSION_*.deb       for Debian 12 and 13, Ubuntu 24.04 and others with such a Python
#   sbom     eoctl-VERSION-*.cdx.json  what is in the kernel, and in the environment of the zipapp
#   sums     SHA256SUMS
#   image    eoctl-VERSION-*.oci.tar   of the Containerfile, with buildah or podman
#   audit    says whether a known weakness is in what constraints.txt names
#
# All of it is made from the commit HEAD, not from files that were changed since; the same commit gives
# the same bytes with the same Rust. It needs cargo, git, and for the steps deb and image their tools.
set -eu
cd "$(dirname "$0")/.."

pythons=${PYTHONS:-3.11 3.12 3.13}
machine=$(uname -m)
glibc=2.28  # what numpy is built for: Debian 10, RHEL 8 and newer
cargo_cyclonedx=0.5.9
dist=${DIST:-dist}
mkdir -p "$dist" .cache
dist=$(cd "$dist" && pwd)
tools=$PWD/.cache/dist-tools/bin
steps=${*:-sdist wheel zipapp deb sbom sums}

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
LC_ALL=C.UTF-8 TZ=UTC
export SOURCE_DATE_EPOCH LC_ALL TZ
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
source=$work/source
mkdir "$source"
git archive HEAD | tar -x -C "$source"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$source/pyproject.toml")

die() { echo "$0: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || die "$1 is missing: $2"; }

make_tools() {
    python=$(scripts/require-tool.sh venv)
    key=$("$python" -V; sha256sum <"$source/scripts/dist-tools.txt")
    [ "$(cat .cache/dist-tools/made 2>/dev/null)" != "$key" ] || return 0
    rm -rf .cache/dist-tools
    "$python" -m venv .cache/dist-tools
    "$tools/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
        --requirement "$source/scripts/dist-tools.txt" </dev/null
    echo "$key" >.cache/dist-tools/made
}

# Packs DIRECTORY of the working directory into FILE: the same bytes from the same files.
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX --format=gnu \
        --mtime="@$SOURCE_DATE_EPOCH" -c "$1" | gzip -9n >"$2"
}

# Writes native/Cargo.lock with the crates of native/constraints.txt.
lock_crates() {
    (
        cd "$source/native"
        cargo generate-lockfile --quiet
        grep -v '^#' constraints.txt | while IFS== read -r name _ crate; do
            cargo update --quiet --package "$name" --precise "$crate"
        done
        sed -n '/^name/{N;s/name = "\(.*\)"\nversion = "\(.*\)"/\1==\2/p}' Cargo.lock |
            grep -v '^eoctl-native==' | sort >"$work/locked"
        grep -v '^#' constraints.txt | sort | diff - "$work/locked" >&2 ||
            die "native/constraints.txt does not name the crates that cargo takes"
        cargo fetch --quiet --locked
    )
}

# The source archive is cut from what setuptools packs; its times are those of the commit.
step_sdist() {
    rm -f "$dist"/eoctl-*.tar.gz
    cp -R "$source" "$work/sdist"
    (cd "$work/sdist" && "$tools/python" -W ignore -c 'import setuptools; setuptools.setup()' --quiet \
        sdist --dist-dir "$work/sdists" 2>"$work/sdist.log") || { cat "$work/sdist.log" >&2; exit 1; }
    tar -C "$work/sdists" -xf "$work/sdists/eoctl-$version.tar.gz"
    (cd "$work/sdists" && pack "eoctl-$version" "$dist/eoctl-$version.tar.gz")
}

# Zig links against the glibc of that time. Paths of this machine stay out of the kernel.
step_wheel() {
    need cargo "install Rust"
    rm -f "$dist"/eoctl-*.whl
    lock_crates
    cat >"$work/cc" <<END
#!/bin/sh
exec "$tools/cargo-zigbuild" zig cc -- -target $machine-linux-gnu.$glibc "\$@"
END
    chmod +x "$work/cc"
    target=$machine-unknown-linux-gnu
    remap=
    for crates in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        remap="$remap --remap-path-prefix=$crates=/crates"
        cflags="${cflags:-} -ffile-prefix-map=$crates=/crates"
    done
    (
        # Python is told of no other module than those of the tools.
        PATH=$tools:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/python
        CARGO_BUILD_TARGET=$target CARGO_TARGET_DIR=${DIST_TARGET:-$PWD/.cache/dist-target}
        RUSTFLAGS="$remap --remap-path-prefix=$source=/eoctl" CFLAGS="${cflags:-} -g0"
        export PATH CARGO_ZIGBUILD_PYTHON_PATH CARGO_BUILD_TARGET CARGO_TARGET_DIR RUSTFLAGS CFLAGS
        name=$(echo "$target" | tr a-z- A-Z_)
        export "CARGO_TARGET_${name}_LINKER=$work/cc" "CC_$(echo "$target" | tr - _)=$work/cc"
        "$tools/python" -m pip wheel --verbose --disable-pip-version-check --no-input --no-deps \
            --no-build-isolation --no-index --wheel-dir "$work/wheels" "$source" </dev/null \
            >.cache/dist-wheel.log 2>&1 || die "no wheel: .cache/dist-wheel.log says why"
        "$tools/python" -m zipfile -l "$work"/wheels/*.whl >"$work/names"
        grep -q '^eoctl_native\.abi3\.so' "$work/names" ||
            die "the kernel did not compile: .cache/dist-wheel.log says why"
        "$tools/auditwheel" repair --plat "manylinux_$(echo $glibc | tr . _)_$machine" \
            --only-plat --wheel-dir "$dist" "$work"/wheels/*.whl >"$work/audit" 2>&1 ||
            { cat "$work/audit" >&2; exit 1; }
    )
}

wheel() {
    set -- "$dist"/eoctl-"$version"-*.whl
    [ -f "$1" ] || die "$dist has no wheel: add the step wheel"
    echo "$1"
}

step_zipapp() {
    wheel=$(wheel)
    # shellcheck disable=SC2086 # a word for each version
    "$tools/python" "$source/scripts/platforms.py" "$work" "$machine" $glibc $pythons >"$work/platforms"
    # shellcheck disable=SC2046 # a word for each platform
    PEX_ROOT=$work/pex "$tools/pex" "$wheel" --constraints "$source/constraints.txt" --use-pip-config \
        --no-build --include-tools --venv --python-shebang '/usr/bin/env python3' --script eoctl \
        --output-file "$dist/eoctl.pyz" $(sed 's/^/--complete-platform /' "$work/platforms")
}

step_deb() {
    DIST=$dist VERSION=$version "$source/scripts/deb.sh"
}

# The environment of the zipapp, whose packages are those of the deb and of the image.
step_sbom() {
    rm -f "$dist"/eoctl-*.cdx.json
    "$tools/python" -m venv --without-pip "$work/sbom"
    "$tools/python" -m pip --python "$work/sbom" install --quiet --disable-pip-version-check \
        --no-input --no-compile --constraint "$source/constraints.txt" "$(wheel)" </dev/null
    "$tools/cyclonedx-py" environment --output-reproducible --output-format JSON \
        --pyproject "$source/pyproject.toml" \
        --output-file "$dist/eoctl-$version-python.cdx.json" "$work/sbom/bin/python"
    [ -x "$tools/cargo-cyclonedx" ] || cargo install --quiet --locked --root .cache/dist-tools \
        "cargo-cyclonedx@$cargo_cyclonedx"
    [ -f "$source/native/Cargo.lock" ] || lock_crates
    (cd "$source/native" && "$tools/cargo-cyclonedx" cyclonedx --quiet --format json \
        --override-filename kernel)
    sed "s|$source|/eoctl|g" "$source/native/kernel.json" >"$dist/eoctl-$version-kernel.cdx.json"
}

step_sums() {
    (cd "$dist" && rm -f SHA256SUMS && sha256sum -- eoctl* >"$work/sums" && mv "$work/sums" SHA256SUMS)
}

step_image() {
    builder=$(command -v buildah || command -v podman) || die "buildah or podman is missing"
    image=$dist/eoctl-$version-$machine.oci.tar
    rm -f "$image"
    [ -f "$dist/eoctl.pyz" ] || die "$dist has no eoctl.pyz: add the step zipapp"
    mkdir "$work/image" && cp "$dist/eoctl.pyz" "$source/Containerfile" "$work/image"
    "$builder" build --pull=missing --timestamp "$SOURCE_DATE_EPOCH" --tag "eoctl:$version" "$work/image"
    "$builder" push "eoctl:$version" "oci-archive:$image:eoctl:$version"
}

step_audit() {
    "$tools/pip-audit" --strict --progress-spinner off --disable-pip --no-deps \
        --requirement "$source/constraints.txt"
}

make_tools
for step in $steps; do
    case $step in
        sdist | wheel | zipapp | deb | sbom | sums | image | audit) "step_$step" ;;
        *) sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
ls -l "$dist"
