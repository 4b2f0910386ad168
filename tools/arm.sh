#!/bin/sh
# Installs a small 64-bit Arm system with Python and IREE's runtime into a folder, for the tests of the Arm kernels.
#
#   tools/arm.sh DIR PYTHON      DIR/python ARGUMENTS... then runs its Python in QEMU's user-mode emulation
#
# apt resolves, downloads and verifies Debian 13's packages for arm64, as if nothing were installed. PYTHON's pip
# downloads the wheels. The host system is not changed.
set -eu

SUITE=trixie
VERSION=3.13
dir=$(realpath -m "${1:?usage: $0 DIR PYTHON}")
python=${2:?usage: $0 DIR PYTHON}
[ ! -e "$dir/python" ] || exit 0

say() { printf 'arm: %s\n' "$*" >&2; }

work=$dir.part
. "$(dirname "$0")/debian.sh"
say "fetching Python for arm64 of $SUITE"
open_suite arm64 "$SUITE"
mkdir -p "$work/root/usr/lib" "$work/packages"
own_apt install -y --no-install-recommends --download-only \
    "python$VERSION-minimal" "libpython$VERSION-stdlib" libstdc++6 >&2
ln -s usr/lib "$work/root/lib"
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$work/root"
done
# The runtime has the version that is installed here, because programs need the version that compiled them.
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
