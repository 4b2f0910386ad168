# Downloads Debian 13 packages into a separate folder. Sourced by arm.sh and lavapipe.sh, which define `say` and `work`.
#
#   open_suite ARCHITECTURE SUITE...   makes the folder $work, and configures `own_apt` with the suites for ARCHITECTURE
#
# apt resolves, downloads and verifies the packages, as if nothing were installed. The host system is not changed.

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
    # The mirror from which this machine gets its own packages.
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
