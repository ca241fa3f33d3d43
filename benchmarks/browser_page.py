"""Pages of a headless Chromium that measure engines: what benchmarks of exports in browsers share."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import volumetric.web
from tests.serve.chromium import SOFTWARE_WEBGPU, VULKAN_WEBGPU, Page, chromium
from tests.web.static_server import StaticServer, static_server

PATIENCE = 400.0
"""Seconds for one answer of a page."""
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
"""Headers with which pages may have threads, which peers use where they can."""
ADAPTER = """
let adapter = null;
for (let i = 0; i < 20 && !adapter; i++) {  // there is none while the browser starts its GPU process
  adapter = await navigator.gpu?.requestAdapter({powerPreference: "high-performance"});
  if (!adapter) await new Promise(done => setTimeout(done, 250));
}
if (!adapter) return null;
const {vendor, architecture, description, subgroupMinSize, subgroupMaxSize} = adapter.info;
const subgroups = [subgroupMinSize, subgroupMaxSize];
return {vendor, architecture, description, subgroups, features: [...adapter.features].sort()};
"""


def add_browser_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that `browser` reads."""
    parser.add_argument("--software", action="store_true", help="use the browser's software adapter")
    parser.add_argument("--flags", default="", help="further flags of the browser, by spaces")


@contextmanager
def browser(args: argparse.Namespace, **folders: Path) -> Iterator[tuple[Page, StaticServer]]:
    """Open a page whose server hands out the engine and `folders`, and print its adapter; exits where there is none."""
    flags = (*(SOFTWARE_WEBGPU if args.software else VULKAN_WEBGPU), *args.flags.split())
    with static_server() as server, chromium(*flags) as page:
        server.folders |= {"engine": Path(volumetric.web.__file__).parent / "site", **folders}
        server.headers = ISOLATED
        page.call("Page.enable")
        page.open(f"{server.url}/")
        adapter = run(page, ADAPTER)
        if adapter is None:
            raise SystemExit("this browser has no WebGPU adapter; --software uses its own")
        print(json.dumps(adapter), flush=True)
        yield page, server


def run(page: Page, body: str, **names: Any) -> Any:
    """Return what the body of an async function gives in a page; raises `RuntimeError` for what it throws."""
    values = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in names.items())
    page.value(
        f"globalThis.answer = null; (async () => {{ {values} {body} }})()"
        ".then(value => { answer = {value: value ?? null}; })"
        ".catch(error => { answer = {error: String(error?.stack ?? error)}; }); 0"
    )
    until = time.monotonic() + PATIENCE
    while (answer := page.value("answer")) is None:
        if time.monotonic() > until:
            raise RuntimeError(f"no answer in {PATIENCE:.0f} s")
        time.sleep(0.05)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["value"]
