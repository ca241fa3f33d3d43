#!/usr/bin/env bash
# Create the virtual environment $1 with a Python of at least 3.11 and a pip that knows dependency groups.
# PYTHON=/path/to/python chooses the interpreter; else the first that can create environments. An environment that works is kept.
set -euo pipefail
venv=$1

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

has_ensurepip() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

candidates() {
    local name
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        if new_enough "$name"; then echo "$name"; fi
    done
}

find_python() {
    local name first=
    for name in $(candidates); do
        if has_ensurepip "$name"; then echo "$name"; return; fi
        first=${first:-$name}
    done
    if [ -z "$first" ]; then
        echo "error: ${PYTHON:-this system} has no Python 3.11 or newer" >&2
        echo "hint: install one (Debian, Ubuntu: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python3.12" >&2
        exit 1
    fi
    add_ensurepip "$first"
    echo "$first"
}

add_ensurepip() {
    local package
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    echo "$1 cannot create virtual environments (it has no ensurepip); trying to install $package" >&2
    bash "$(dirname "$0")/apt_install.sh" "$package" >&2 && has_ensurepip "$1" && return
    echo "error: $1 has no ensurepip, so \`$1 -m venv\` cannot work" >&2
    echo "hint: install it as root (apt install $package, or apt install python3-venv) and run make again" >&2
    exit 1
}

if ! new_enough "$venv/bin/python"; then
    python=$(find_python)
    echo "Creating $venv with $("$python" --version 2>&1)"
    "$python" -m venv --clear "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
