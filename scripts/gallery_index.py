"""The index of a gallery: a card for each page, with what it shows and its size."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

from volumetric.base.progress import byte_size
from volumetric.base.script_page import page_part

_STYLE = """
body { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.0625rem; margin: 0; }
p { margin: .25rem 0 0; }
ul { list-style: none; margin: 1.5rem 0 0; padding: 0; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr)); }
a { height: 100%; display: flex; flex-direction: column; padding: 1rem; color: inherit; text-decoration: none;
  border: 1px solid var(--edge); border-radius: .9rem; }
a:hover { border-color: var(--accent); background: var(--panel); }
h2 { color: var(--accent); }
.size { margin-top: auto; padding-top: .75rem; color: var(--dim); font-size: .8125rem; }
"""


def index_page(gallery: Path, cards: Iterable[tuple[str, str, str]]) -> str:
    """Return the page of links to those (path in the gallery, title, what it shows) that are there."""
    items = "\n".join(
        f'<li><a href="{path}{"" if path.endswith(".html") else "/"}"><h2>{html.escape(title)}</h2>'
        f'<p>{html.escape(what)}</p><p class="size">{_size(gallery / path)}</p></a></li>'
        for path, title, what in cards
        if (gallery / path).exists()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Networks in the browser</title>\n"
        f'<link rel="icon" href="data:,">\n<style>{page_part("controls.css")}{_STYLE}</style>\n<main>\n'
        "<h1>Networks in the browser</h1>\n"
        "<p>Each page runs its network on your GPU, and needs a browser with WebGPU.</p>\n"
        f"<ul>\n{items}\n</ul>\n</main>\n</html>\n"
    )


def _size(page: Path) -> str:
    """Return how many bytes a page has, and whether it is one file."""
    if page.is_file():
        return f"one file, {byte_size(page.stat().st_size)}"
    return f"folder, {byte_size(sum(file.stat().st_size for file in page.rglob('*') if file.is_file()))}"
