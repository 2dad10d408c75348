#!/bin/sh
# Build the development-mode compiler that the tests use: setup-devmode.sh MLGO_CORPUS FOLDER
# Where it is there already, that is seen in a second. Where it cannot be built, the tests that need it are skipped;
# with CI=true that is an error.
set -eu
program=$1
folder=$2
echo "a development-mode compiler for the tests, in $folder"
if MLGO_CORPUS_CACHE="$folder" "$program" toolchain build --install --output "$folder/devmode-19" \
    --llvm-config llvm-config-19; then
    exit 0
fi
if [ "${CI:-}" = true ]; then
    echo "make: the tests need a development-mode compiler, and it cannot be built here" >&2
    exit 1
fi
echo "without a development-mode compiler the tests that need one will be skipped" >&2
