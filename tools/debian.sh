# Packages of Debian 13 in a folder of their own; sourced by arm.sh and lavapipe.sh, which have `say` and `work`.
#
#   open_suite ARCHITECTURE SUITE...   makes $work, and `own_apt` know the suites for it
#
# apt resolves, downloads and checks the packages, as if nothing were installed; the system stays as it is.

own_apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

open_suite() {
    architecture=$1
    shift
    command -v apt-get >/dev/null 2>&1 || { say "apt-get is missing: these tests need Debian or Ubuntu"; exit 1; }
    key=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$key" ] || { say "$key is missing: install debian-archive-keyring"; exit 1; }
    # The mirror that this machine's own packages come from.
    site=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -n 1)
    [ -n "$site" ] || { say "apt knows no mirror: run apt-get update first"; exit 1; }
    rm -rf "$work"
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/root"
    : >"$work/status"
    for suite in "$@"; do
        echo "deb [arch=$architecture signed-by=$key] $site $suite main"
    done >"$work/sources.list"
    own_apt update
}
