#!/usr/bin/env bash
# Make sure that the tests of Dawn find a Vulkan driver. Dawn refuses the llvmpipe of Debian 12 (Mesa 22.3), so a newer one
# is unpacked from Debian's backports into VENV/lavapipe: nothing is installed, and the other GPU tests keep the system's.
# None is no error: the tests of Dawn are skipped then, unless VOLUMETRIC_REQUIRE_DAWN is set.
set -euo pipefail
venv=$(cd "$1" && pwd)
place=$venv/lavapipe
icd=$place/lvp_icd.json

takes_driver() {
    VOLUMETRIC_WEBGPU=dawn "$venv/bin/python" -c 'from volumetric.devices.gpu import GpuDevice; GpuDevice()' >/dev/null 2>&1
}
give_up() { echo "note: $1, so the tests of Dawn are skipped" >&2; exit 0; }

"$venv/bin/python" -c 'import wgpudawn' 2>/dev/null || give_up "wgpudawn is not installed"
takes_driver && exit
[ -f "$icd" ] && VK_DRIVER_FILES=$icd takes_driver && exit
[ -z "${NO_APT:-}" ] || give_up "NO_APT is set and Dawn takes no driver of this machine"
command -v apt-get dpkg-deb >/dev/null || give_up "Dawn takes no driver of this machine"
. /etc/os-release
[ "${ID:-}" = debian ] || give_up "Dawn takes no driver of this machine: a newer Mesa is needed"

echo "Unpacking a newer llvmpipe into $place (NO_APT=1 forbids it)"
mkdir -p "$place"/{lists/partial,cache/archives/partial}
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$key] http://deb.debian.org/debian $VERSION_CODENAME-backports main" >"$place/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$place/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$place/lists"
    -o "Dir::Cache=$place/cache" -o APT::Sandbox::User=root)
(cd "$place" && apt-get "${options[@]}" update && apt-get "${options[@]}" download mesa-vulkan-drivers) </dev/null >/dev/null ||
    give_up "Debian's backports cannot be reached"
dpkg-deb -x "$place"/mesa-vulkan-drivers_*.deb "$place/root"
rm -rf "$place"/lists "$place"/cache "$place"/*.deb
library=$(find "$place/root" -name libvulkan_lvp.so)
printf '{"file_format_version": "1.0.0", "ICD": {"api_version": "1.4.305", "library_path": "%s"}}\n' "$library" >"$icd"
VK_DRIVER_FILES=$icd takes_driver || give_up "Dawn does not take the newer llvmpipe either"
