"""The page of a template: a visitor chooses a file, watches it load, stops it, talks to it, and forgets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.web.gguf_files import write_llama
from tests.web.page_views import WebPages, check_names_and_widths
from volumetric.web.save_web import save_web

SIZES: dict[str, Any] = {"hidden": 96, "heads": 3, "kv": 1, "ff": 64, "layers": 1}
ALERT = "document.querySelector('[role=alert]')?.textContent ?? ''"
CHAT = "document.documentElement.dataset.shown === 'chat'"
CHOOSE = "document.querySelector('.choice') !== null"
STORED = (
    "[...document.querySelectorAll('.stored .file-name')].filter(one => one.textContent === '/export/mine.gguf').length"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a template, and files beside it: one that fits, and one that does not."""
    home = tmp_path_factory.mktemp("template")
    write_llama(home / "mine.gguf", {"": "Q8_0"}, general__name="Mine <b>", **SIZES)
    save_web(home / "mine.gguf", home / "page", template=True, context=16, title="Small ones")
    (home / "page" / "mine.gguf").write_bytes((home / "mine.gguf").read_bytes())
    write_llama(home / "page" / "other.gguf", {"": "Q4_0"}, **SIZES)
    return home


def choose(pages: WebPages, path: Path) -> None:
    """Open a file by the file chooser."""
    document = pages.page.call("DOM.getDocument")["root"]["nodeId"]
    node = pages.page.call("DOM.querySelector", nodeId=document, selector="#file")["nodeId"]
    pages.page.call("DOM.setFileInputFiles", nodeId=node, files=[str(path)])


def ask(pages: WebPages, address: str) -> None:
    """Write an address, and press Enter."""
    pages.page.value(
        f"(box => {{ box.value = {json.dumps(address)}; box.focus(); }})(document.querySelector('#address'))"
    )
    pages.page.press("Enter")


def press_beside_mine(pages: WebPages, word: str) -> None:
    """Press a button of the stored file; other tests may have stored others."""
    pages.page.value(f"document.querySelector('[aria-label^={word}][aria-label$=\"/export/mine.gguf\"]').click()")


def test_a_file_of_the_visitor(pages: WebPages, folder: Path) -> None:
    page = pages.open(folder / "page")
    assert "like “Small ones”" in page.value("document.body.innerText")
    choose(pages, folder / "page" / "other.gguf")
    pages.wait(f"({ALERT}).includes('volumetric export')")
    assert "Tensor token_embd.weight is Q4_0 [96,266] in the file and Q8_0 [96,266] in the template." in page.value(
        ALERT
    )
    choose(pages, folder / "mine.gguf")
    pages.wait(CHAT)
    assert page.value("document.title") == "Mine <b>"
    assert page.value(ALERT) == ""
    page.write("ab")
    page.press("Enter")
    pages.wait("document.querySelector('#stop').hidden && document.querySelectorAll('.assistant').length === 1")
    assert not [address for address, _ in pages.server.requests if address.endswith(".gguf")]


@pytest.mark.thorough
def test_an_address(pages: WebPages, folder: Path) -> None:
    page = pages.open(folder / "page")
    for address, sentence in (
        ("https://elsewhere.example/m.gguf", "alone. Download the file"),
        ("http://", "is not an address"),
        ("nothing.gguf", "answers 404"),
    ):
        ask(pages, address)
        pages.wait(f"{CHOOSE} && ({ALERT}).includes({json.dumps(sentence)})")
    ask(pages, "mine.gguf")
    pages.wait(CHAT)
    assert page.value("location.search") == "?model=mine.gguf"
    page.open(f"{pages.server.url}/export/index.html?model=mine.gguf")
    pages.wait(CHAT)
    size = (folder / "page" / "mine.gguf").stat().st_size
    wanted = [wanted for address, wanted in pages.server.requests if address == "/export/mine.gguf"]
    assert wanted == [None, f"bytes={size - 1}-"]
    pages.press("Another file")
    page.wait(f"{STORED} === 1")
    press_beside_mine(pages, "Forget")
    pages.wait(f"{STORED} === 0")
    page.forget_complaints()  # Chromium reports the 404


@pytest.mark.thorough
def test_it_is_stopped_and_goes_on(pages: WebPages, folder: Path) -> None:
    page = pages.open(folder / "page")
    size = (folder / "page" / "mine.gguf").stat().st_size
    half = size - 1000
    pages.server.cuts["/export/mine.gguf"] = [half, 0, 0]  # the pauses between repetitions are long enough to stop it
    ask(pages, "mine.gguf")
    pages.wait("document.querySelector('.loading progress')?.value > 0.5")
    assert "MB" in page.value("document.querySelector('.loading p').textContent")
    page.press("Escape")
    pages.wait(f"{CHOOSE} && {STORED} === 1")
    assert page.value(ALERT) == ""
    assert ", in part" in page.value("document.querySelector('.stored').textContent")
    pages.server.cuts.clear()
    pages.server.requests.clear()
    press_beside_mine(pages, "Load")
    pages.wait(CHAT)
    assert ("/export/mine.gguf", f"bytes={half}-") in pages.server.requests
    pages.press("Another file")
    page.wait(f"{STORED} === 1")
    press_beside_mine(pages, "Forget")
    pages.wait(f"{STORED} === 0")
    page.forget_complaints()


@pytest.mark.thorough
def test_everything_has_a_name_and_fits(pages: WebPages, folder: Path) -> None:
    page = pages.open(folder / "page")
    check_names_and_widths(page, least=4)


def test_a_drop(pages: WebPages, folder: Path) -> None:
    page = pages.open(folder / "page")
    page.value(
        "(transfer => { transfer.items.add(new File(['GGUX'], 'odd.gguf'));"
        " const about = {dataTransfer: transfer, bubbles: true, cancelable: true};"
        " document.body.dispatchEvent(new DragEvent('drop', about));"
        " })(new DataTransfer())"
    )
    pages.wait(f"({ALERT}).includes('odd.gguf: This is not a GGUF file')")
