#!/bin/sh
# Install the LLVM tools and the few others that the tests use, from Debian's packages, where they are missing and we are
# root or may become it without a password. Without them the tests that need them are skipped; with CI=true that is an
# error.
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

# What is to be installed: on each line, packages that are of use together only.
needed() {
    # A compiler whose objects hold no bitcode; the browser that the tests look at reports with, and what drives it; what
    # sets up the network namespace that the tests run Ray in.
    for package in gcc:gcc chromium:chromium chromium-driver:chromedriver util-linux:unshare iproute2:ip; do
        command -v "${package#*:}" >/dev/null || echo "${package%:*}"
    done
    for version in $(missing); do
        echo "clang-$version llvm-$version lld-$version"
    done
}

packages=$(needed)
[ -n "$packages" ] || exit 0
install=$(dirname "$0")/apt-install.sh
# Together is fastest; where one cannot be had, the others can.
# shellcheck disable=SC2086 # many words
sh "$install" $packages || needed | while read -r together; do
    # shellcheck disable=SC2086 # many words
    sh "$install" $together || true
done

wanted=$(missing | tr '\n' ' ')
[ -n "$wanted" ] || exit 0
if [ "${CI:-}" = true ]; then
    echo "make: the tests need clang, llvm and lld of version ${wanted% }, and they cannot be installed here" >&2
    exit 1
fi
echo "LLVM ${wanted% } is not there and cannot be installed here: the tests that need it will be skipped" >&2
