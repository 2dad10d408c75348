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

# A compiler whose objects hold no bitcode.
command -v gcc >/dev/null || sh "$(dirname "$0")/apt-install.sh" gcc || true

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
