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

# A compiler whose objects hold no bitcode.
command -v gcc >/dev/null || sh "$(dirname "$0")/apt-install.sh" gcc || true

# The browser that the tests look at reports with, and what drives it.
for package in chromium:chromium chromium-driver:chromedriver; do
    command -v "${package#*:}" >/dev/null || sh "$(dirname "$0")/apt-install.sh" "${package%:*}" || true
done

# What sets up the network namespace that the tests run Ray in.
for package in util-linux:unshare iproute2:ip; do
    command -v "${package#*:}" >/dev/null || sh "$(dirname "$0")/apt-install.sh" "${package%:*}" || true
done

wanted=$(missing)
[ -n "$wanted" ] || exit 0

for version in $wanted; do
    sh "$(dirname "$0")/apt-install.sh" "clang-$version" "llvm-$version" "lld-$version" || break
done

wanted=$(missing | tr '\n' ' ')
[ -n "$wanted" ] || exit 0
if [ "${CI:-}" = true ]; then
    echo "make: the tests need clang, llvm and lld of version ${wanted% }, and they cannot be installed here" >&2
    exit 1
fi
echo "LLVM ${wanted% } is not there and cannot be installed here: the tests that need it will be skipped" >&2
