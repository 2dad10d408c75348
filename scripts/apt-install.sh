#!/bin/sh
# Install Debian packages, where we are root or may become it without a password: apt-install.sh PACKAGE...
# Fails, with the end of what apt said, where that is not possible.
set -eu
if [ "$(id -u)" = 0 ]; then
    sudo=
elif sudo -n true 2>/dev/null; then
    sudo="sudo -n"
else
    exit 1
fi
command -v apt-get >/dev/null || exit 1
# Two of us at a time would find apt's lists locked.
exec 9<"$0"
flock 9
echo "installing $*"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # no word where we are root
if ! { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "$@"; } </dev/null >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    exit 1
fi
