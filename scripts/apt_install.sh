#!/usr/bin/env bash
# Install Debian packages where that needs no password: as root, or through sudo that does not ask. Else fail and say why.
# NO_APT=1 forbids it.
set -euo pipefail

refuse() { echo "cannot install $packages: $1" >&2; exit 1; }

packages=$*
[ -z "${NO_APT:-}" ] || refuse "NO_APT is set"
command -v apt-get >/dev/null || refuse "this system has no apt-get"
if [ "$(id -u)" -eq 0 ]; then
    as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    refuse "that takes root, and sudo wants a password"
fi
echo "Installing $packages with apt-get (NO_APT=1 forbids it)"
"${as_root[@]}" apt-get update -qq </dev/null
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
