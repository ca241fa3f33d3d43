#!/usr/bin/env bash
# Make sure that the GPU tests find a Vulkan driver: Mesa's llvmpipe runs the shaders on the CPU.
set -euo pipefail
venv=$1

has_adapter() {
    "$venv/bin/python" -c '
import sys, wgpu
sys.exit(not any(a.info["backend_type"] == "Vulkan" for a in wgpu.gpu.enumerate_adapters_sync()))' >/dev/null 2>&1
}

has_adapter && exit
bash "$(dirname "$0")/apt_install.sh" libvulkan1 mesa-vulkan-drivers && has_adapter && exit
echo "warning: no Vulkan driver, so the GPU tests will fail" >&2
echo "hint: install a software one as root: apt install libvulkan1 mesa-vulkan-drivers" >&2
