"""The page of the scope: one HTML text with its scripts, styles and data, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.scope.document import ScopeDocument, encode_document

_MAIN: Final = "main.js"
_IMPORT: Final = re.compile(r'(\bfrom\s*|\bimport\s*)"(\.{1,2}/[^"]+)"')
_VENDOR: Final = "vendor/"


def scope_page(document: ScopeDocument, *, live: str | None = None) -> str:
    """Return the page of a document.

    Parameters
    ----------
    live : token for the server that hands out the page; None: the page stands alone

    Raises
    ------
    SpecError : the document has data that a page cannot hold, or a view of an unknown kind
    """
    encoded = encode_document(document)
    loader, style = _web_text("loader.js"), _style()
    scripts = "".join(
        f'<script type="text/plain" data-module="{name}">{_inert(text)}</script>\n'
        for name, text in page_modules(view.kind for view in document.views)
    )
    blobs = "".join(
        f'<script type="text/plain" data-blob="{i}">{base64.b64encode(blob).decode()}</script>\n'
        for i, blob in enumerate(encoded.blobs)
    )
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(loader)}' blob:; style-src 'unsafe-inline'; "
        "img-src data: blob:; media-src blob:; connect-src 'self' blob:; form-action 'none'; base-uri 'none'"
    )
    # a "<" in a name could end the script with "</script>"
    data = encoded.json.replace("<", "\\u003c")
    token = "" if live is None else html.escape(live)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="volumetric-live" content="{token}">\n'
        f"<title>{html.escape(document.title)}</title>\n<style>{style}</style>\n<body>\n"
        '<noscript>This page needs JavaScript.</noscript>\n<div id="scope"></div>\n'
        f'<script type="application/json" id="document">{data}</script>\n{blobs}{scripts}'
        f"<script>{loader}</script>\n</body>\n</html>\n"
    )


def page_modules(kinds: Iterable[str]) -> list[tuple[str, str]]:
    """Return name and text of all scripts that views of these kinds need, each after those that it imports.

    In the texts an import names its module as ``"@scope/NAME"``; `web/loader.js` puts addresses in place of that.

    Raises
    ------
    SpecError : there is no script for a kind
    """
    ordered: dict[str, str] = {}
    open_names: list[str] = []

    def add(name: str) -> None:
        if name in ordered:
            return
        if name in open_names:
            raise SpecError(f"scripts import each other in a circle: {' → '.join([*open_names, name])}")
        open_names.append(name)
        text = _web_text(name)
        if not name.startswith(_VENDOR):
            for match in _IMPORT.finditer(text):
                add(_resolve(name, match[2]))
            text = _IMPORT.sub(lambda match: f'{match[1]}"@scope/{_resolve(name, match[2])}"', text)
        open_names.pop()
        ordered[name] = text

    for kind in dict.fromkeys(kinds):
        name = f"views/{kind}.js"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", kind) or not files("volumetric.scope").joinpath("web", name).is_file():
            raise SpecError(f"there is no view of the kind {kind!r}")
        add(name)
    add(_MAIN)
    return list(ordered.items())


def _resolve(name: str, relative: str) -> str:
    """Return the name of the script that `name` imports as `relative`."""
    parts = name.split("/")[:-1]
    for part in relative.split("/"):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


@cache
def _web_text(name: str) -> str:
    return files("volumetric.scope").joinpath("web", *name.split("/")).read_text("utf-8")


@cache
def _style() -> str:
    """Return the styles of the page, then those of single views."""
    folder = files("volumetric.scope").joinpath("web", "css")
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".css")) if folder.is_dir() else []
    return "\n".join([_web_text("scope.css"), *(_web_text(f"css/{name}") for name in names)])


def _inert(text: str) -> str:
    """Return a script that cannot end the element in which it stands."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
