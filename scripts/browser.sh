#!/usr/bin/env bash
# Find a browser that compiles the shaders and opens the server's page in the tests, or install one where that needs no
# password. None is no error: the tests that want it are skipped then, unless VOLUMETRIC_REQUIRE_BROWSER is set.
set -euo pipefail

has_browser() { command -v chromium chromium-browser google-chrome >/dev/null; }

[ -n "${CHROMIUM:-}" ] && exit
has_browser && exit
bash "$(dirname "$0")/apt_install.sh" chromium && has_browser && exit
echo "note: no Chromium, so the shaders are not compiled for browsers, and the server's page is not opened" >&2
