#!/bin/sh
# Prepares a machine for the Makefile, so that its recipes stay one line each.
#
#   tools/bootstrap.sh venv DIR PIP-ARGUMENTS...   make DIR a virtual environment and install into it
#   tools/bootstrap.sh arm PYTHON                  install an emulator of 64-bit Arm, and IREE's runtime for it in build/
#   tools/bootstrap.sh vulkan                      install Mesa's software Vulkan device and the SPIR-V tools, and newer
#                                                  versions of them in build/
#
# Missing system packages are installed with apt if that is possible without a password (as root on
# Debian or Ubuntu); otherwise the script stops and says what to install.
set -eu

PYTHON=${PYTHON:-python3}

say() { printf 'bootstrap: %s\n' "$*" >&2; }

# apt_install REASON PACKAGE...
apt_install() {
    reason=$1
    shift
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        say "$reason"
        say "install these packages (Debian's names) and run the command again: $*"
        say "    sudo apt-get install $*"
        exit 1
    fi
    say "$reason: installing $*"
    export DEBIAN_FRONTEND=noninteractive
    # The package lists of a fresh container are empty, and those of an old one name files that no longer exist.
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

make_venv() {
    dir=$1
    shift
    if ! "$dir/bin/python" -m pip --version >/dev/null 2>&1; then
        command -v "$PYTHON" >/dev/null 2>&1 || apt_install "there is no $PYTHON" python3 python3-venv
        "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
            say "$("$PYTHON" --version) is too old: qmlir needs 3.10 or newer (PYTHON=python3.11 make ...)"
            exit 1
        }
        # Debian packages ensurepip separately from the interpreter. Without it `import venv` works, `-m venv` fails.
        "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || {
            version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
            apt_install "$PYTHON cannot make virtual environments" "python$version-venv"
        }
        "$PYTHON" -m venv --clear "$dir"
    fi
    "$dir/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$(dirname "$0")/constraints.txt" "$@"
}

has_vulkan() {
    # With VK_DRIVER_FILES the caller has chosen a device.
    [ -z "${VK_DRIVER_FILES:-}" ] || return 0
    for manifest in /usr/share/vulkan/icd.d/lvp_icd*.json /etc/vulkan/icd.d/lvp_icd*.json; do
        [ ! -e "$manifest" ] || return 0
    done
    return 1
}

has_library() {
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "$1"
}

vulkan() {
    missing=
    has_vulkan || missing="$missing mesa-vulkan-drivers"
    has_library 'libvulkan\.so\.1' || missing="$missing libvulkan1"
    command -v spirv-val >/dev/null 2>&1 || missing="$missing spirv-tools"
    # shellcheck disable=SC2086  # a list of package names
    [ -z "$missing" ] || apt_install "the Vulkan tests run on Mesa's lavapipe, which is missing" $missing
    "$(dirname "$0")/lavapipe.sh" build/lavapipe ||
        say "without a newer lavapipe the tests of kernels on cooperative matrices fail"
}

arm() {
    command -v qemu-aarch64 >/dev/null 2>&1 ||
        apt_install "the tests of kernels for Arm run in QEMU, which is missing" qemu-user
    "$(dirname "$0")/arm.sh" build/arm "$1" ||
        say "without Python and IREE's runtime for arm64 the tests of kernels for Arm fail"
}

case "${1:-}" in
venv)
    [ $# -ge 3 ] || { say "usage: $0 venv DIR PIP-ARGUMENTS..."; exit 2; }
    shift
    make_venv "$@"
    ;;
arm)
    [ $# -eq 2 ] || { say "usage: $0 arm PYTHON"; exit 2; }
    arm "$2"
    ;;
vulkan) vulkan ;;
*)
    say "usage: $0 venv DIR PIP-ARGUMENTS... | arm PYTHON | vulkan"
    exit 2
    ;;
esac
