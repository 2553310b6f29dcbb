#!/bin/sh
# Makes DIST/eoctl_VERSION_ARCHITECTURE.deb around DIST/eoctl.pyz; `scripts/dist.sh deb` calls it.
#
# The package holds the one file, the man pages and the completions. When it is installed it makes
# the environment /opt/eoctl from the one file, with the Python that is there and without the network,
# so that a command starts at once and needs no home directory.
set -eu
cd "$(dirname "$0")/.."
for tool in dpkg-deb dpkg gzip; do
    command -v $tool >/dev/null || { echo "$0: $tool is missing: apt-get install dpkg-dev" >&2; exit 1; }
done

architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
python=${PYTHON:-python3}
date=$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
# A release names an address that answers; lintian takes this one for none.
owner=${MAINTAINER:-The eoctl developers <eoctl@localhost>}

# place MODE FILE PATH: a file of the package.
place() { install -D --mode="$1" "$2" "$root/$3"; }

place 755 "$DIST/eoctl.pyz" usr/lib/eoctl/eoctl.pyz
for page in man/*; do
    place 644 "$page" "usr/share/man/man${page##*.}/$(basename "$page")"
done
for shell in bash zsh fish; do
    PEX_ROOT=$work/pex "$python" "$DIST/eoctl.pyz" --show-completion $shell >"$work/$shell"
done
place 644 "$work/bash" usr/share/bash-completion/completions/eoctl
place 644 "$work/zsh" usr/share/zsh/vendor-completions/_eoctl
place 644 "$work/fish" usr/share/fish/vendor_completions.d/eoctl.fish

cat >"$work/eoctl" <<'END'
#!/bin/sh
# The environment knows the Python that made it; after an upgrade of Python the one file is left.
if [ -x /opt/eoctl/bin/python ]; then
    exec /opt/eoctl/bin/eoctl "$@"
fi
exec /usr/bin/python3 /usr/lib/eoctl/eoctl.pyz "$@"
END
place 755 "$work/eoctl" usr/bin/eoctl

cat >"$work/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: eoctl
Comment: /usr/lib/eoctl/eoctl.pyz holds Python packages with licences of their own, which it names
 in their .dist-info directories.

Files: *
Copyright: 2026 The eoctl developers
License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.
END
place 644 "$work/copyright" usr/share/doc/eoctl/copyright
printf 'eoctl: %s\n' bogus-mail-host bogus-mail-host-in-debian-changelog >"$work/overrides"
[ -n "${MAINTAINER:-}" ] || place 644 "$work/overrides" usr/share/lintian/overrides/eoctl
cat >"$work/changelog.Debian" <<END
eoctl ($VERSION) unstable; urgency=medium

  * Release $VERSION. CHANGELOG.md of the sources lists what changed.

 -- $owner  $date
END
place 644 "$work/changelog.Debian" usr/share/doc/eoctl/changelog
find "$root/usr/share/man" "$root/usr/share/doc/eoctl/changelog" -type f -exec gzip -9n {} +

mkdir -p "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: eoctl
Version: $VERSION
Architecture: $architecture
Maintainer: $owner
Installed-Size: $(du --summarize --apparent-size --block-size=1K "$root/usr" | cut -f 1)
Depends: python3 (>= 3.11), python3 (<< 3.14), libc6 (>= 2.28)
Suggests: less
Section: admin
Priority: optional
Description: fsck, scalpel and microscope for the log directories of Kafka brokers
 eoctl reads the log directories of stopped or running brokers. It says whether
 a broker will start and what it would delete, repairs with undo, and finds what
 blocks consumers and which records are duplicated or lost.
END
# The environment is made where nothing is: one of another version is removed before.
cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    rm -rf /opt/eoctl
    unpacked=$(mktemp -d)
    if ! PEX_ROOT=$unpacked PEX_TOOLS=1 /usr/bin/python3 /usr/lib/eoctl/eoctl.pyz \
        venv --compile --non-hermetic-scripts /opt/eoctl >"$unpacked/log" 2>&1; then
        cat "$unpacked/log" >&2
        rm -rf "$unpacked" /opt/eoctl
        exit 1
    fi
    rm -rf "$unpacked"
fi
END
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
rm -rf /opt/eoctl
END
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
(cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2) >"$work/md5sums"
install --mode=644 "$work/md5sums" "$root/DEBIAN/md5sums"

rm -f "$DIST"/eoctl_*_"$architecture".deb
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
# The one file is compressed already.
dpkg-deb --root-owner-group -Zgzip -z1 --build "$root" "$DIST" >/dev/null
