"""The page of an export: its files in a folder, or one HTML file with everything in it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.base.script_page import inline_page, page_part, scripts_for
from volumetric.web.page_hints import VIEWS

SINGLE_BYTES: Final = 32 << 20
"""Most bytes of a page of one file: browsers parse all of it before they show anything."""
_TITLE: Final = "<title>A network</title>"
_PAGE: Final = '<div id="page">'
_TEMPLATE: Final = ("gguf/model_source.js", "views/choose_model.js")
"""Scripts of the page of a template."""
_LAZY: Final = {
    "rows": ("calls.js",), "sequences": ("calls.js",), "stream": ("calls.js", "streams.js"), "ticks": ("ticks.js",),
    "language": ("text.js", "language.js"), "encoder": ("calls.js", "text.js", "encoder.js"),
    "learner": ("calls.js", "streams.js", "learner.js"),
}  # fmt: skip
"""Kind → scripts that the engine loads when it needs them."""
_CONTROLS: Final = "controls.css"


def page_files(network: Mapping[str, Any]) -> dict[str, str]:
    """Return name → text of the files that show a network, to lie beside its network.json.

    Raises
    ------
    SpecError : there is no view for it
    """
    page = (_site() / "index.html").read_text("utf-8")
    page = page.replace(_TITLE, f"<title>{html.escape(str(network['title']))}</title>")
    if "template" in network:
        page = page.replace(_PAGE, _PAGE[:-1] + " data-template>")
    pages = {"index.html": page}
    scripts = _scripts(network, "page.js", "stored_files.js", *(_TEMPLATE if "template" in network else ()))
    licences = {
        name: _vendored(name) for name in _licences() if any(script.startswith("vendor/") for script in scripts)
    }
    types = _site() / "engine.d.ts"
    typed = {"engine.d.ts": types.read_text("utf-8")} if types.is_file() else {}
    return pages | {"page.css": _style(network)} | scripts | typed | licences


def single_page(network: Mapping[str, Any], pieces: Iterable[bytes], texts: Mapping[str, bytes]) -> str:
    """Return one page with the network in it.

    Parameters
    ----------
    network : contents of network.json
    pieces : contents of its pieces, in order
    texts : name → contents of other files, such as tokenizer.json

    Raises
    ------
    SpecError : it would be larger than 32 MiB, or there is no view for the network
    """
    page = inline_page(
        title=str(network["title"]),
        style=_style(network),
        body='<div id="page"></div>',
        scripts=_scripts(network, "main.js"),
        data={
            "network": json.dumps(network, separators=(",", ":"), ensure_ascii=False),
            "files": json.dumps({name: text.decode() for name, text in texts.items()}, separators=(",", ":")),
        },
        blobs=tuple(pieces),
        packed=True,
        connect="blob:",
    )
    size = len(page.encode())
    if size > SINGLE_BYTES:
        raise SpecError(
            f"the page would have {size / 2**20:.0f} MiB, and one file may have {SINGLE_BYTES >> 20}",
            hint="leave --single-file out, for a folder; or store the weights in fewer bits, such as --dtype int4:g32",
        )
    return page


def _scripts(network: Mapping[str, Any], *entries: str) -> dict[str, str]:
    view = (network.get("ui") or {}).get("view")
    kind = network["kind"]
    if view not in VIEWS:
        raise SpecError(
            f"there is no page for a network of the kind {kind}",
            hint="a page teaches one class a sample, or numbers; use engine.js from a page of your own"
            if kind == "learner"
            else "use engine.js from a page of your own: see docs/web.md",
        )
    evolves = "evolution" in (network.get("population") or {})
    lazy = ("neat/population.js",) if evolves else _LAZY.get(kind, ())
    if any(variant["needs"].get("subgroup") for variant in network["variants"]):
        lazy = ("lane_probe.js", *lazy)
    return scripts_for([*entries, f"views/{view}.js", "worker.js", *lazy], _site())


def _style(network: Mapping[str, Any]) -> str:
    parts = [page_part(_CONTROLS), (_site() / "page.css").read_text("utf-8")]
    if (network.get("ui") or {}).get("view") == "chat":
        parts.insert(1, page_part("talk.css"))
    return "".join(parts)


def _site() -> Traversable:
    return files("volumetric.web").joinpath("site")


@cache
def _licences() -> tuple[str, ...]:
    vendor = _site().joinpath("vendor")
    names = sorted(one.name for one in vendor.iterdir()) if vendor.is_dir() else []
    return tuple(f"vendor/{name}" for name in names if name.startswith("LICENSE"))


def _vendored(name: str) -> str:
    return _site().joinpath(*name.split("/")).read_text("utf-8")
