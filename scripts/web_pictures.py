"""The pictures of docs/web.md: pages of the gallery after someone has used them, drawn by Chromium.

    python scripts/web_pictures.py [NAME …]

Without names all are made, into docs/web/. Needs Chromium, Pillow and the pages that ``make gallery`` builds.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.gallery import GALLERY, PAGES
from scripts.page_pictures import grab, resize, save_still
from tests.serve.chromium import SOFTWARE_WEBGPU, Page, chromium
from tests.web.page_views import WebPages
from tests.web.static_server import static_server

OUT = Path(__file__).parents[1] / "docs" / "web"
SEVEN = ((0.3, 0.2), (0.7, 0.2), (0.45, 0.9))
PICTURES: dict[str, tuple[tuple[int, int], str]] = {
    "xor": ((1080, 800), "document.querySelector('.field-canvas').dataset.filled === 'true'"),
    "digits": ((1080, 560), "true"),
    "cartpole": ((1080, 620), "document.body.innerText.includes(' steps, best ')"),
}
"""Name of a page of the gallery → size, and what is waited for."""


def main(names: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    with static_server() as server, chromium(*SOFTWARE_WEBGPU) as page:
        for one in ("Page", "Runtime", "Log"):
            page.call(f"{one}.enable")
        pages = WebPages(page, server)
        for name in names or PICTURES:
            size, ready = PICTURES[name]
            resize(page, size)
            pages.open(GALLERY / PAGES[name].target(name))
            if name == "digits":
                pages.draw("canvas.pixels", SEVEN)
            pages.wait(ready)
            for scheme, end in (("dark", ""), ("light", "-light")):
                take(page, scheme, OUT / f"{name}{end}.webp")
            print(name, flush=True)


def take(page: Page, scheme: str, path: Path) -> None:
    """Save a picture of the page in a scheme of colours."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.value("(scrollTo(0, 0), new Promise(done => setTimeout(done, 700)))")
    save_still(grab(page), path)


if __name__ == "__main__":
    main(sys.argv[1:])
