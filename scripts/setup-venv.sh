#!/bin/sh
# Make a virtual environment: setup-venv.sh PYTHON FOLDER
# Where Debian's venv module is missing, and we are root or may become it, install that first.
set -eu
wanted=$1
folder=$2

fail() {
    echo "make: $*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=
if is_new_enough "$wanted"; then
    python=$wanted
elif [ "$wanted" = python3 ]; then
    for candidate in python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
fi
if [ -z "$python" ]; then
    found=$("$wanted" --version 2>&1) || found="none"
    fail "Python 3.11 or newer is needed ($wanted: $found): install it, or name it: make PYTHON=/path/to/python3.11"
fi

has_venv() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null
}

if ! has_venv; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    sh "$(dirname "$0")/apt-install.sh" "$package" || true
    has_venv || fail "$python lacks the venv module: install it (on Debian and Ubuntu: apt install $package)"
fi

echo "making a virtual environment in $folder with $("$python" --version)"
exec "$python" -m venv --clear "$folder"
