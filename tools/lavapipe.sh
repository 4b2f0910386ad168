#!/bin/sh
# Puts a newer lavapipe and newer SPIR-V tools beside the system's, for the tests of kernels on cooperative matrices.
#
#   tools/lavapipe.sh DIR        DIR/lavapipe COMMAND... then runs COMMAND with that driver and the libraries it needs
#
# Mesa 26.1's lavapipe has cooperative matrices, Debian 12's 22.3 and Debian 13's 25.0 have none. apt resolves, downloads and checks the
# packages of Debian 13 and its backports into DIR, as if nothing were installed; the system stays as it is. COMMAND's
# program is started by the newer loader, since newer libraries ask for it.
set -eu

SUITE=trixie
dir=$(realpath -m "${1:?usage: $0 DIR}")
[ ! -e "$dir/lavapipe" ] || exit 0

say() { printf 'lavapipe: %s\n' "$*" >&2; }

command -v apt-get >/dev/null 2>&1 || { say "apt-get is missing: these tests need Debian or Ubuntu"; exit 1; }
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$key" ] || { say "$key is missing: install debian-archive-keyring"; exit 1; }
# The mirror that this machine's own packages come from.
site=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -n 1)
[ -n "$site" ] || { say "apt knows no mirror: run apt-get update first"; exit 1; }

work=$dir.part
rm -rf "$work"
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root"
: >"$work/status"
for suite in "$SUITE" "$SUITE-backports"; do
    echo "deb [signed-by=$key] $site $suite main"
done >"$work/sources.list"

own_apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

say "fetching Mesa of $SUITE-backports"
own_apt update
own_apt install -y --no-install-recommends --download-only -t "$SUITE-backports" \
    mesa-vulkan-drivers libvulkan1 spirv-tools >&2
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done

libraries=$dir/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo "$(uname -m)-linux-gnu")
loader=$(basename "$(ls "$work"/root/usr/lib64/ld-linux-*.so.* "$work"/root/usr/lib/ld-linux-*.so.* 2>/dev/null | head -n 1)")
sed -i "s#\"library_path\": *\"[^\"]*\"#\"library_path\": \"$libraries/libvulkan_lvp.so\"#" \
    "$work"/root/usr/share/vulkan/icd.d/lvp_icd*.json
cat >"$work/lavapipe" <<END
#!/bin/sh
for driver in "$dir"/root/usr/share/vulkan/icd.d/lvp_icd*.json; do
    export VK_DRIVER_FILES="\$driver"
done
name=\$(command -v "\$1")
shift
exec "$libraries/$loader" --argv0 "\$name" --library-path "$libraries:/usr/local/lib:/lib/$(basename "$libraries"):/usr/lib/$(basename "$libraries")" "\$(readlink -f "\$name")" "\$@"
END
chmod +x "$work/lavapipe"
rm -rf "$work/cache" "$work/state" "$dir"
mv "$work" "$dir"
