#!/bin/sh
# Puts a small 64-bit Arm system with Python and IREE's runtime into a folder, for the tests of kernels for Arm.
#
#   tools/arm.sh DIR PYTHON      DIR/python ARGUMENTS... then runs its Python in an emulator of a user's process
#
# apt resolves, downloads and checks Debian 13's packages for arm64, as if nothing were installed, and PYTHON's pip the
# wheels for them; the system stays as it is.
set -eu

SUITE=trixie
VERSION=3.13
dir=$(realpath -m "${1:?usage: $0 DIR PYTHON}")
python=${2:?usage: $0 DIR PYTHON}
[ ! -e "$dir/python" ] || exit 0

say() { printf 'arm: %s\n' "$*" >&2; }

command -v apt-get >/dev/null 2>&1 || { say "apt-get is missing: these tests need Debian or Ubuntu"; exit 1; }
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$key" ] || { say "$key is missing: install debian-archive-keyring"; exit 1; }
# The mirror that this machine's own packages come from.
site=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -n 1)
[ -n "$site" ] || { say "apt knows no mirror: run apt-get update first"; exit 1; }

work=$dir.part
rm -rf "$work"
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root/usr/lib" "$work/packages"
: >"$work/status"
echo "deb [arch=arm64 signed-by=$key] $site $SUITE main" >"$work/sources.list"

own_apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

say "fetching Python for arm64 of $SUITE"
own_apt update
own_apt install -y --no-install-recommends --download-only \
    "python$VERSION-minimal" "libpython$VERSION-stdlib" libstdc++6 >&2
ln -s usr/lib "$work/root/lib"
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$work/root"
done
# The runtime of the version that is installed here: a program is loaded by the version that compiled it.
runtime=$("$python" -c 'import importlib.metadata as m; print(m.version("iree-base-runtime"))')
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux2014_aarch64 \
    --python-version "$VERSION" --target "$work/packages" "iree-base-runtime==$runtime" numpy ml_dtypes
cat >"$work/python" <<END
#!/bin/sh
exec qemu-aarch64 -cpu max,pauth-impdef=on -L "$dir/root" -E PYTHONPATH="$dir/packages" "$dir/root/usr/bin/python$VERSION" "\$@"
END
chmod +x "$work/python"
rm -rf "$work/cache" "$work/state" "$work"/lock* "$work/sources.list" "$work/status" "$dir"
mv "$work" "$dir"
