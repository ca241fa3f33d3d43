"""HTML pages with all their scripts, styles and data in one text, which load nothing from elsewhere.

Scripts are ES modules of package data. They stand in the page as inert texts, and ``page_parts/loader.js`` makes an
address for each, so the page also opens from a file. A Content-Security-Policy allows that loader and what it makes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from volumetric.base.errors import SpecError

_IMPORT: Final = re.compile(r'(\bfrom\s*|\bimport\s*)"(\.{1,2}/[^"]+)"')
_VENDOR: Final = "vendor/"


def scripts_for(entries: Iterable[str], folder: Traversable) -> dict[str, str]:
    """Return name → text of all scripts that these need, each after those that it imports.

    Parameters
    ----------
    entries : names in `folder`, such as ``views/scene.js``
    folder : where the scripts are; a name that is not there is one of the parts that pages share

    Raises
    ------
    SpecError : a script is missing, or scripts import each other in a circle
    """
    ordered: dict[str, str] = {}
    open_names: list[str] = []

    def add(name: str) -> None:
        if name in ordered:
            return
        if name in open_names:
            raise SpecError(f"scripts import each other in a circle: {' → '.join([*open_names, name])}")
        open_names.append(name)
        text = _script_text(name, folder)
        for imported in () if name.startswith(_VENDOR) else _IMPORT.finditer(text):
            add(_resolve(name, imported[2]))
        open_names.pop()
        ordered[name] = text

    for name in entries:
        add(name)
    return ordered


def inline_page(
    *,
    title: str,
    style: str,
    body: str,
    scripts: Mapping[str, str],
    data: Mapping[str, str],
    blobs: Sequence[bytes] = (),
    metas: Mapping[str, str] | None = None,
    packed: bool = False,
    connect: str = "'self' blob:",
) -> str:
    """Return a page whose script ``main.js`` is started with the addresses of all others.

    Parameters
    ----------
    title : plain text
    style : CSS
    body : HTML before the scripts
    scripts : from `scripts_for`
    data : name → JSON text, in elements with these ids
    blobs : bytes, each in an element ``script[data-blob]`` as base64
    metas : name → content of further meta elements
    packed : write scripts, styles and data as one gzip archive, which ``start`` gets as its second argument:
        {modules, texts, style}
    connect : what scripts may fetch, as a policy's ``connect-src``
    """
    loader = page_part("loader.js")
    linked = [(name, _with_names(name, text)) for name, text in scripts.items()]
    policy = (
        f"default-src 'none'; script-src '{source_hash(loader)}' blob:; worker-src blob:; style-src 'unsafe-inline'; "
        f"img-src data: blob:; media-src blob:; connect-src {connect}; form-action 'none'; base-uri 'none'"
    )
    extra = "".join(f'<meta name="{name}" content="{html.escape(text)}">\n' for name, text in (metas or {}).items())
    contents = _archive(linked, data, style) if packed else _texts(data)
    contents += "".join(
        f'<script type="text/plain" data-blob="{i}">{base64.b64encode(blob).decode()}</script>\n'
        for i, blob in enumerate(blobs)
    )
    contents += "" if packed else _modules(linked)
    styled = "" if packed else f"<style>{style}</style>\n"
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{extra}'
        f"<title>{html.escape(title)}</title>\n{styled}<body>\n"
        f"<noscript>This page needs JavaScript.</noscript>\n{body}\n{contents}"
        f"<script>{loader}</script>\n</body>\n</html>\n"
    )


@cache
def page_part(name: str) -> str:
    """Return the text of a script or style that pages share."""
    return files("volumetric.base").joinpath("page_parts", name).read_text("utf-8")


def source_hash(script: str) -> str:
    """Return what names a script in a policy's ``script-src``."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _script_text(name: str, folder: Traversable) -> str:
    for place in (folder, files("volumetric.base").joinpath("page_parts")):
        file = place.joinpath(*name.split("/"))
        if file.is_file():
            return file.read_text("utf-8")
    raise SpecError(f"there is no script {name}")


def _archive(modules: Sequence[tuple[str, str]], data: Mapping[str, str], style: str) -> str:
    """Return an element with all scripts, data and styles, compressed."""
    text = json.dumps({"modules": modules, "texts": data, "style": style}, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return f'<script type="text/plain" data-archive>{packed}</script>\n'


def _texts(data: Mapping[str, str]) -> str:
    # a "<" in a name could end the script with "</script>"
    return "".join(
        '<script type="application/json" id="{}">{}</script>\n'.format(name, text.replace("<", "\\u003c"))
        for name, text in data.items()
    )


def _modules(modules: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<script type="text/plain" data-module="{name}">{_inert(text)}</script>\n' for name, text in modules
    )


def _with_names(name: str, text: str) -> str:
    """Return a script that imports ``"@page/NAME"``; the loader puts addresses in place of that."""
    if name.startswith(_VENDOR):
        return text
    return _IMPORT.sub(lambda match: f'{match[1]}"@page/{_resolve(name, match[2])}"', text)


def _resolve(name: str, relative: str) -> str:
    """Return the name of the script that `name` imports as `relative`."""
    parts = name.split("/")[:-1]
    for part in relative.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _inert(text: str) -> str:
    """Return a script that cannot end the element in which it stands."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
