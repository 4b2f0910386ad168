#!/bin/sh
# Installs a newer lavapipe and newer SPIR-V tools next to the system's, for the tests of cooperative-matrix kernels.
#
#   tools/lavapipe.sh DIR        DIR/lavapipe COMMAND... then runs COMMAND with that driver and the libraries it needs
#
# Mesa 26.1's lavapipe has cooperative matrices; Debian 12's (22.3) and Debian 13's (25.0) do not. apt resolves,
# downloads and verifies the packages of Debian 13 and its backports into DIR, as if nothing were installed. The host
# system is not changed. The newer libraries need the newer dynamic loader, which starts COMMAND.
set -eu

SUITE=trixie
dir=$(realpath -m "${1:?usage: $0 DIR}")
[ ! -e "$dir/lavapipe" ] || exit 0

say() { printf 'lavapipe: %s\n' "$*" >&2; }

work=$dir.part
. "$(dirname "$0")/debian.sh"
say "fetching Mesa of $SUITE-backports"
open_suite "$(dpkg --print-architecture)" "$SUITE" "$SUITE-backports"
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
