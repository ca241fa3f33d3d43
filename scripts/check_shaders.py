"""Compile every shader module in headless Chromium, and make a pipeline of each kernel.

    python scripts/check_shaders.py [--dump DIRECTORY]

The tests compile a covering choice of the modules; this compiles all of them, for devices of three kinds (a minute).
`--dump` writes them as files instead, each with a JSON of its bindings, and needs no browser.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.gpu.browser import NoBrowserError, refusals
from tests.gpu.modules import Module, covering, modules
from volumetric.devices.gpu.shaders import LinkedShader

_TYPES = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}


def entries(linked: LinkedShader) -> list[dict[str, object]]:
    """The layout of the module's bindings, as WebGPU writes it."""
    return [{"binding": b.index, "visibility": 4, "buffer": {"type": _TYPES[b.access]}} for b in linked.bindings]


def small_pipelines(linked: dict[str, tuple[Module, LinkedShader]]) -> dict[str, object]:
    """Bindings of the shortest module of each kernel that has no more than every device: software compiles slowly."""
    chosen = set(map(id, covering(modules())))
    shortest: dict[str, str] = {}
    for name, (module, _) in sorted(linked.items(), key=lambda item: len(item[1][1].text)):
        if module.device == "least" and id(module) in chosen:
            shortest.setdefault(module.dispatch.kernel, name)
    return {name: entries(linked[name][1]) for name in shortest.values()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dump", type=Path, metavar="DIRECTORY")
    args = parser.parse_args()
    linked = {f"{i:04} {m.device} {m.dispatch.label}": (m, m.link("tint")) for i, m in enumerate(modules())}
    if args.dump is not None:
        args.dump.mkdir(parents=True, exist_ok=True)
        for name, (_, module) in linked.items():
            stem = args.dump / name.replace("/", "-").replace(" ", "_").replace(":", "-")
            stem.with_suffix(".wgsl").write_text(module.text)
            stem.with_suffix(".json").write_text(json.dumps(entries(module)))
        print(f"{len(linked)} modules in {args.dump}")
        return 0
    start = time.perf_counter()
    try:
        found = refusals({name: text.text for name, (_, text) in linked.items()}, small_pipelines(linked))
    except NoBrowserError as error:
        print(f"check_shaders: {error}", file=sys.stderr)
        return 1
    for name, message in found.items():
        print(f"{name}: {message}")
    print(f"{len(linked)} modules in {time.perf_counter() - start:.0f} s, {len(found)} refused")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
