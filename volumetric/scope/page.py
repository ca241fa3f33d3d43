"""The page of the scope: one HTML text with its scripts, styles and data, which loads nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.base.script_page import inline_page, scripts_for
from volumetric.scope.document import ScopeDocument, encode_document

_MAIN: Final = "main.js"


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
    return inline_page(
        title=document.title,
        style=_style(),
        body='<div id="scope"></div>',
        scripts=page_modules(view.kind for view in document.views),
        data={"document": encoded.json},
        blobs=encoded.blobs,
        metas={"volumetric-live": live or ""},
    )


def page_modules(kinds: Iterable[str]) -> dict[str, str]:
    """Return name → text of all scripts that views of these kinds need, each after those that it imports.

    Raises
    ------
    SpecError : there is no script for a kind
    """
    folder = files("volumetric.scope").joinpath("web")
    names = []
    for kind in dict.fromkeys(kinds):
        name = f"views/{kind}.js"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", kind) or not folder.joinpath(name).is_file():
            raise SpecError(f"there is no view of the kind {kind!r}")
        names.append(name)
    return scripts_for([*names, _MAIN], folder)


@cache
def _style() -> str:
    """Return the styles of the page, then those of single views."""
    web = files("volumetric.scope").joinpath("web")
    folder = web.joinpath("css")
    names = sorted(one.name for one in folder.iterdir() if one.name.endswith(".css")) if folder.is_dir() else []
    return "\n".join(web.joinpath(name).read_text("utf-8") for name in ("scope.css", *(f"css/{one}" for one in names)))
