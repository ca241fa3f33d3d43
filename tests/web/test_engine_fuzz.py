"""Damaged descriptions: whatever stands in network.json or tokenizer.json, loading and running it succeeds or raises an
`EngineError`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.generate.letters import loaded_letters, next_letter_logits
from tests.web.engine_page import EnginePage
from tests.web.handmade_networks import dense_network, ticking_network
from volumetric.web.export_network import export_network

_FUZZ = """
const junk = [null, -1, 1.5, 1e300, "", "x", "__proto__", [], {}, true, [[]], [null], 2 ** 31, {a: 1}, undefined];
let state = seed;
const next = count => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % 65536 % count;
const places = [], damaged = part === "network" ? network : JSON.parse(texts[part]);
const walk = (value, path) => {
  for (const [key, one] of Object.entries(value)) {
    places.push([...path, key]);
    if (one && typeof one === "object") walk(one, [...path, key]);
  }
};
walk(damaged, []);
const wrong = [], seen = {};
for (let i = 0; i < rounds; i++) {
  const copy = structuredClone(damaged), path = places[next(places.length)], value = junk[next(junk.length)];
  const holder = path.slice(0, -1).reduce((one, key) => one[key], copy);
  if (value === undefined) delete holder[path.at(-1)];
  else holder[path.at(-1)] = value;
  const own = part === "network", text = JSON.stringify(copy);
  const file = name => JSON.parse(own ? texts[name] : text);
  const source = {json: () => own ? text : network, piece: i => pieces[i], file};
  let m = null;
  try {
    m = await engine.load(source, {worker: false});
    if (m.info.language) for await (const token of m.generate(own ? [0] : "abz", {maxTokens: 3})) void token;
    else if (m.info.streams) await m.stream().step([1]);
    else await m.run([1, 2, 3, 4]);
    seen.fine = (seen.fine ?? 0) + 1;
  } catch (error) {
    seen[error.name] = (seen[error.name] ?? 0) + 1;
    const known = error instanceof engine.EngineError;
    if (!known) wrong.push([path.join("."), String(JSON.stringify(value)), String(error.stack)]);
  }
  await m?.close();
}
return {wrong, seen};
"""


def _contents(folder: Path) -> dict[str, Any]:
    network = json.loads((folder / "network.json").read_text())
    pieces = [base64.b64encode((folder / one["file"]).read_bytes()).decode() for one in network["pieces"]]
    texts = {path.name: path.read_text() for path in folder.glob("tokenizer.json")}
    return {"network": network, "pieces": pieces, "texts": texts}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["dense", "ticks", "language", "tokenizer"])
def test_changed_places(engine: EnginePage, kind: str) -> None:
    folder = engine.folder
    if kind == "dense":
        dense_network(folder, np.random.default_rng(1))
    elif kind == "ticks":
        ticking_network(folder)
    else:
        folder = folder / "letters"
        export_network(loaded_letters(next_letter_logits()), folder)
    engine.expects_complaints = True
    part = "tokenizer.json" if kind == "tokenizer" else "network"
    rounds = 300 if kind in ("dense", "ticks") else 30
    result = engine.run(_FUZZ, seed=5, rounds=rounds, part=part, **_contents(folder))
    assert result["wrong"] == []
    assert result["seen"]["fine"] < 300
