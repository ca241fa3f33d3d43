"""The engine in a page that is one file: modules and worker from blobs, data from script elements, nothing fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

import volumetric
from tests.generate.letters import loaded_letters, next_letter_logits
from tests.serve.chromium import Page
from tests.web.engine_page import EnginePage
from volumetric.web.export_network import export_network

_SITE = Path(volumetric.__file__).parent / "web" / "site"
_IMPORT = re.compile(r'(\bfrom\s*|\bimport\s*)"\./([^"]+)"')
_SCRIPT = """
const addresses = {}, modules = [];
for (const element of document.querySelectorAll("script[data-module]")) {
  const text = element.textContent.replace(/"@own\\/([^"]+)"/g, (whole, name) => JSON.stringify(addresses[name]));
  modules.push([element.dataset.module, element.textContent]);
  addresses[element.dataset.module] = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
}
const text = name => document.getElementById(name).textContent;
const source = {json: () => text("network"), piece: i => text(`piece-${i}`), file: name => text(name)};
(async () => {
  const engine = await import(addresses["engine.js"]);
  const m = await engine.load(source, {addresses, modules, worker: WORKER});
  let answer = "";
  for await (const token of m.chat([{role: "user", content: "ab"}])) answer += token;
  await m.close();
  document.title = `answer: ${answer}`;
})().catch(error => { document.title = `error: ${error.name} ${error.message}`; });
"""


def _is_whole(name: str) -> bool:
    """Whether a script and all that it imports are here; those of the page stand on parts that lie elsewhere."""
    path = _SITE / name
    return path.is_file() and all(_is_whole(match[2]) for match in _IMPORT.finditer(path.read_text()))


def _modules() -> list[tuple[str, str]]:
    """Return name and text of all modules, each after those that it imports."""
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in ordered:
            text = (_SITE / name).read_text()
            for match in _IMPORT.finditer(text):
                add(match[2])
            ordered[name] = _IMPORT.sub(r'\1"@own/\2"', text)

    for path in sorted(_SITE.glob("*.js")):
        if _is_whole(path.name):
            add(path.name)
    return list(ordered.items())


def _write_page(folder: Path, *, worker: bool) -> Path:
    script = _SCRIPT.replace("WORKER", str(worker).lower())
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    network = json.loads((folder / "network.json").read_text())
    elements = [("network", json.dumps(network)), ("tokenizer.json", (folder / "tokenizer.json").read_text())]
    pieces = [(folder / piece["file"]).read_bytes() for piece in network["pieces"]]
    elements += [(f"piece-{i}", base64.b64encode(piece).decode()) for i, piece in enumerate(pieces)]
    policy = f"default-src 'none'; script-src 'sha256-{digest}' blob:; worker-src blob:"
    html = "".join(
        ['<!doctype html><meta charset="utf-8"><title>…</title>',
         f'<meta http-equiv="Content-Security-Policy" content="{policy}">']
        + [f'<script type="text/plain" data-module="{name}">{text}</script>' for name, text in _modules()]
        + [f'<script type="text/plain" id="{name}">{text}</script>' for name, text in elements]
        + [f"<script>{script}</script>"]
    )  # fmt: skip
    path = folder / f"page-{worker}.html"
    path.write_text(html)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("worker", [True, False])
def test_a_language_model_in_one_file(engine: EnginePage, worker: bool) -> None:
    export_network(loaded_letters(next_letter_logits()), engine.folder / "letters")
    path = _write_page(engine.folder / "letters", worker=worker)
    engine.page.open(f"file://{path}")
    engine.page.wait("document.title.length > 1")
    assert engine.page.value("document.title") == "answer: cdefgh"


def test_a_damaged_piece_of_the_page(engine: EnginePage) -> None:
    export_network(loaded_letters(next_letter_logits().repeat(64, 1)[:, :9], text=False), engine.folder / "letters")
    network = json.loads((engine.folder / "letters" / "network.json").read_text())
    assert isinstance(engine.page, Page)
    for piece, name, text in (("!", "FormatError", "not base64"), ("AAAA", "DamagedFileError", "cut off")):
        network["pieces"] = [{"file": "weights-000.bin", "bytes": 12, "sha256": "0" * 64}]
        failure = engine.failure(
            "await engine.load({json: () => network, piece: () => piece}); return 0", network=network, piece=piece
        )
        assert (failure.name, text in failure.message) == (name, True), failure.message
