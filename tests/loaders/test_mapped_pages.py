"""Memory of opening a file: pages that were read are handed back, and what built a tokenizer is let go."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import volumetric
from tests.loaders.byte_bpe import tokenizer
from tests.loaders.tiny import copy
from volumetric.base.errors import CheckpointError
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf


def resident(path: Path) -> int:
    """KiB of a mapped file that this process holds."""
    lines, held, inside = Path("/proc/self/smaps").read_text().splitlines(), 0, False
    for line in lines:
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(f" {path}")
        elif inside and line.startswith("Rss:"):
            held += int(line.split()[1])
    return held


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
def test_small_tensors_take_the_pages_around_them_along(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    large, small = np.zeros((64, 4096), np.float32), np.ones(16, np.float32)
    tensors: dict[str, GGUFTensorOut] = {}
    for i in range(4):
        tensors[f"large.{i}"] = GGUFTensorOut(type="F32", shape=large.shape, read=lambda: large)
        tensors[f"small.{i}"] = GGUFTensorOut(type="F32", shape=small.shape, read=lambda: small)
    words = [f"token {i}" for i in range(20_000)]
    write_gguf(path, {"general.architecture": "llama", "tokenizer.ggml.tokens": words}, tensors)
    file = GGUFFile(path)
    strings = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(strings, LazyStrings)
    assert list(strings) == words
    for name in file.entries:
        assert file.packed(name).payload.size
        file.release(name)
    # What the header says of the tensors is behind the strings, and stays.
    assert resident(path) <= 64 + 4
    np.testing.assert_array_equal(file.packed("small.3").codes().reshape(-1), small)  # it comes back


def with_tokenizer(home: Path) -> Path:
    built = tokenizer(home)
    directory = copy("llama", home, vocab_size=320, eos_token_id=1, bos_token_id=0, pad_token_id=None)
    (directory / "generation_config.json").unlink()
    built.save(directory / "tokenizer.json")
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    convert_model(directory, home / "m.gguf")
    return home / "m.gguf"


def test_a_tokenizer_is_there_before_the_weights(tmp_path: Path) -> None:
    path = with_tokenizer(tmp_path)
    assert "backend" not in vars(open_model(path).tokenizer)
    with volumetric.load(path, device="reference") as model:
        assert model.tokenizer is not None
        assert "backend" in vars(model.tokenizer)
        assert model.tokenizer._make is None  # nor the list of all tokens that it was built from


def test_one_that_cannot_be_built_is_reported_when_it_is_used(tmp_path: Path) -> None:
    path = with_tokenizer(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"tokenizer.ggml.merges", b"tokenizer.ggml.mergez"))
    with volumetric.load(path, device="reference") as model:
        assert model.logits([1, 2]).shape[-1] == 320
        for _ in range(2):
            with pytest.raises(CheckpointError, match="merges is missing"):
                model.encode("a")
