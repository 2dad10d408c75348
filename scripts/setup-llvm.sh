#!/bin/sh
# Install the LLVM tools that the tests use, from Debian's packages, where they are missing and we are root or may
# become it without a password. Without them the tests that need LLVM are skipped; with CI=true that is an error.
set -eu
versions="19 22"

has() {
    for program in clang clang++ ld.lld llvm-objcopy llvm-dis llvm-ar llvm-nm llvm-readelf llvm-lipo llvm-size; do
        command -v "$program-$1" >/dev/null || return 1
    done
}

missing() {
    for version in $versions; do
        has "$version" || echo "$version"
    done
}

wanted=$(missing)
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" = 0 ]; then
    sudo=
elif sudo -n true 2>/dev/null; then
    sudo="sudo -n"
else
    sudo=no
fi
if [ "$sudo" != no ] && command -v apt-get >/dev/null; then
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # shellcheck disable=SC2086 # no word where we are root
    $sudo apt-get update -qq </dev/null >"$log" 2>&1 || tail -n 3 "$log" >&2
    for version in $wanted; do
        echo "installing clang-$version llvm-$version lld-$version"
        # shellcheck disable=SC2086
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "clang-$version" "llvm-$version" "lld-$version" </dev/null >"$log" 2>&1 || tail -n 3 "$log" >&2
    done
fi

wanted=$(missing | tr '\n' ' ')
[ -n "$wanted" ] || exit 0
if [ "${CI:-}" = true ]; then
    echo "make: the tests need clang, llvm and lld of version ${wanted% }, and they cannot be installed here" >&2
    exit 1
fi
echo "LLVM ${wanted% } is not there and cannot be installed here: the tests that need it will be skipped" >&2
