"""GGUF files that do not fit, are split over several, or damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loaders.test_convert import assert_same, speaking
from tests.loaders.tiny import TINY
from volumetric.base.errors import CheckpointError, GenerationError, UnsupportedError
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf


def edit(path: Path, metadata: dict[str, Any], extra: dict[str, GGUFTensorOut] | None = None) -> None:
    """Write a GGUF file anew with some metadata replaced (None removes) and tensors added."""
    file = GGUFFile(path)
    width = {int: np.uint32, float: np.float32}
    values = {key: width.get(type(value), lambda v: v)(value) for key, value in file.metadata.items()}
    values = {key: value for key, value in (values | metadata).items() if value is not None}
    tensors = {
        name: GGUFTensorOut(type=entry.type, shape=entry.shape, read=lambda name=name: file.raw(name))
        for name, entry in file.entries.items()
    }
    write_gguf(path, values, tensors | (extra or {}))


SHORT = GGUFTensorOut(type="F32", shape=(7,), read=lambda: np.ones(7, np.float32))
VECTOR = GGUFTensorOut(type="F32", shape=(8,), read=lambda: np.full(8, 3, np.float32))


@pytest.mark.parametrize(
    ("metadata", "extra", "error", "message"),
    [
        ({"general.architecture": "rwkv7"}, {}, UnsupportedError, "architecture 'rwkv7' is not supported"),
        ({"general.architecture": None}, {}, UnsupportedError, "architecture None is not supported"),
        ({"llama.embedding_length": None}, {}, CheckpointError, "embedding_length is missing"),
        ({"llama.embedding_length": "64"}, {}, CheckpointError, "embedding_length is '64'"),
        ({"llama.block_count": np.uint32(2**32 - 1)}, {}, CheckpointError, "block_count"),
        ({"llama.block_count": np.uint32(3)}, {}, CheckpointError, r"9 missing: blk.2.attn_k.weight"),
        ({"llama.expert_count": np.uint32(8)}, {}, CheckpointError, "2 layers need a router of 8 experts each"),
        ({"llama.rope.dimension_count": np.uint32(8)}, {}, UnsupportedError, "is 8, but heads have 16 elements"),
        ({"llama.rope.scaling.type": "longrope"}, {}, UnsupportedError, "scaling 'longrope' is not supported"),
        ({"llama.attention.value_length": np.uint32(8)}, {}, UnsupportedError, "another width than key heads"),
        ({}, {"rope_freqs.weight": SHORT}, CheckpointError, "rope_freqs.weight is not a list of 8 positive numbers"),
        (
            {"llama.rope.scaling.type": "linear"},
            {"rope_freqs.weight": VECTOR},
            UnsupportedError,
            "in addition to .* 'linear'",
        ),
        ({}, {"stray.weight": VECTOR}, CheckpointError, "1 unexpected: stray.weight"),
        ({"tokenizer.ggml.tokens": "x"}, {}, CheckpointError, "tokens is not a list of strings"),
    ],
)
def test_gguf_models_that_do_not_fit_are_named(
    metadata: dict[str, Any], extra: dict[str, GGUFTensorOut], error: type[Exception], message: str, tmp_path: Path
) -> None:
    convert_model(str(TINY / "llama"), tmp_path / "m.gguf")
    edit(tmp_path / "m.gguf", metadata, extra)
    with pytest.raises(error, match=message):
        open_model(str(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("expert_count", 3, CheckpointError, "2 layers need a router of 3 experts each"),
        ("expert_count", 2**31 - 1, CheckpointError, "router"),
        ("expert_used_count", None, CheckpointError, "expert_used_count is missing"),
        ("expert_used_count", 5, CheckpointError, "cannot choose 5 of 4 experts"),
        ("expert_gating_func", 2, UnsupportedError, "expert_gating_func=2"),
    ],
)
def test_gguf_mixtures_that_do_not_fit_are_named(
    key: str, value: int | None, error: type[Exception], message: str, tmp_path: Path
) -> None:
    convert_model(str(TINY / "mixtral"), tmp_path / "m.gguf")
    edit(tmp_path / "m.gguf", {f"llama.{key}": None if value is None else np.uint32(value)})
    with pytest.raises(error, match=message):
        open_model(str(tmp_path / "m.gguf"))


def test_the_gate_of_a_shared_expert_may_be_a_vector(tmp_path: Path) -> None:
    """As llama.cpp's converter writes it."""
    convert_model(str(TINY / "qwen2_moe"), tmp_path / "m.gguf")
    file, name = GGUFFile(tmp_path / "m.gguf"), "blk.1.ffn_gate_inp_shexp.weight"
    assert file.entries[name].shape == (1, 32)
    flat = GGUFTensorOut(type="F32", shape=(32,), read=lambda: file.raw(name))
    edit(tmp_path / "m.gguf", {}, {name: flat})
    assert_same(open_model(str(tmp_path / "m.gguf")), open_model(str(TINY / "qwen2_moe")))


def split(path: Path, home: Path) -> list[Path]:
    """Cut a GGUF file into two, as llama-gguf-split does: metadata and the first tensors, then the rest."""
    file = GGUFFile(path)
    names = list(file.entries)
    paths = [home / f"m-{part:05d}-of-00002.gguf" for part in (1, 2)]
    width = {int: np.uint32, float: np.float32}
    metadata = {key: width.get(type(value), lambda v: v)(value) for key, value in file.metadata.items()}
    for number, (target, part) in enumerate(zip(paths, (names[:7], names[7:]), strict=True)):
        tensors = {
            name: GGUFTensorOut(type=entry.type, shape=entry.shape, read=lambda name=name: file.raw(name))
            for name, entry in file.entries.items()
            if name in part
        }
        about = {"split.no": np.uint16(number), "split.count": np.uint16(2)}
        write_gguf(target, about | ({} if number else metadata), tensors)
    return paths


def test_split_gguf_models_open_by_any_part_or_directory(tmp_path: Path) -> None:
    convert_model(TINY / "llama", tmp_path / "whole.gguf")
    home = tmp_path / "parts"
    home.mkdir()
    paths = split(tmp_path / "whole.gguf", home)
    for source in (*paths, home):
        assert_same(open_model(source), open_model(tmp_path / "whole.gguf"))
    paths[1].rename(home / "other.gguf")
    with pytest.raises(CheckpointError, match=r"1 of 2 shards: m-00002-of-00002.gguf is missing"):
        open_model(paths[0])
    with pytest.raises(CheckpointError, match="is one part of a split model"):
        open_model(home / "other.gguf")
    (home / "other.gguf").rename(paths[1])
    paths[1].write_bytes(paths[0].read_bytes())
    with pytest.raises(CheckpointError, match="is not part 2 of 2"):
        open_model(paths[0])


def test_an_embedding_that_is_no_matrix(tmp_path: Path) -> None:
    convert_model(str(TINY / "llama"), tmp_path / "m.gguf")
    edit(tmp_path / "m.gguf", {}, {"token_embd.weight": VECTOR})
    with pytest.raises(CheckpointError, match="the matrix token_embd"):
        open_model(str(tmp_path / "m.gguf"))


@pytest.mark.thorough
@settings(max_examples=150)
@given(data=st.data())
def test_mutated_models_open_or_raise_on_purpose(data: st.DataObject, talking: tuple[Path, bytes]) -> None:
    """Reader, configuration, network, tokenizer and template together face damage that each layer of checks lets by."""
    path, content = talking
    mutated = bytearray(content)
    for at in data.draw(st.lists(st.integers(0, content.index(b"blk.1.ffn_up.weight")), min_size=1, max_size=3)):
        mutated[at] = data.draw(st.integers(0, 255))
    path.write_bytes(mutated)
    try:
        model = open_model(path)
        for store in model.params.values():
            store.packed()
        if model.tokenizer is not None:
            model.tokenizer.decode(model.tokenizer.encode("abc 12"))
        if model.chat_template is not None:
            model.chat_template.render([{"role": "user", "content": "x"}])
    except (CheckpointError, UnsupportedError, GenerationError):
        pass


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = speaking(tmp_path_factory.mktemp("fuzz"))
    return path, path.read_bytes()
