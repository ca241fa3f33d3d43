#!/usr/bin/env bash
# Create the virtual environment $1 with a Python of at least 3.11 and a pip that knows dependency groups.
# PYTHON=/path/to/python chooses the interpreter. An environment that works is kept.
set -euo pipefail
venv=$1

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if new_enough "$candidate"; then echo "$candidate"; return; fi
    done
    echo "error: no Python 3.11 or newer on PATH${PYTHON:+ (PYTHON=$PYTHON is none either)}" >&2
    echo "hint: install one (Debian, Ubuntu: apt install python3 python3-venv) or name it: make PYTHON=/path/to/python3.12" >&2
    exit 1
}

ensure_venv_module() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    local package
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    echo "This Python cannot create virtual environments: ensurepip is missing; trying to install $package." >&2
    bash "$(dirname "$0")/apt_install.sh" "$package" && "$1" -c 'import ensurepip, venv' 2>/dev/null && return
    echo "error: $1 has no ensurepip, so \`$1 -m venv\` cannot work" >&2
    echo "hint: install it as root (apt install $package, or apt install python3-venv) and run make again" >&2
    exit 1
}

if ! new_enough "$venv/bin/python"; then
    python=$(find_python)
    ensure_venv_module "$python"
    echo "Creating $venv with $("$python" --version 2>&1)"
    "$python" -m venv --clear "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
