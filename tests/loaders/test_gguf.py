"""The GGUF reader and writer: exact values, agreement with the reference package, and no surprise from bad files."""

from __future__ import annotations

import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme, decode, to_gguf
from volumetric.loaders.gguf import GGUFFile, decoded_types
from volumetric.loaders.gguf_types import BLOCK_TYPES, DECODED_TYPES, GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_values import LazyStrings
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf

METADATA = {
    "general.architecture": "llama",
    "a.u8": np.uint8(255),
    "a.i8": np.int8(-3),
    "a.u16": np.uint16(65535),
    "a.i16": np.int16(-300),
    "a.u32": np.uint32(2**32 - 1),
    "a.i32": np.int32(-5),
    "a.f32": np.float32(1e-5),
    "a.bool": True,
    "a.text": "héllo",
    "a.u64": np.uint64(2**64 - 1),
    "a.i64": np.int64(-(2**63)),
    "a.f64": np.float64(0.1),
    "tokens": ["a", "", "Ġb"],
    "types": np.array([1, 3, 1], np.int32),
    "flags": np.array([True, False]),
}


def tensors(rng: np.random.Generator) -> dict[str, GGUFTensorOut]:
    values = rng.standard_normal((4, 64)).astype(np.float32)
    out = {
        "f32": GGUFTensorOut(type="F32", shape=(4, 64), read=lambda: values),
        "f16": GGUFTensorOut(type="F16", shape=(4, 64), read=lambda: values.astype(np.float16)),
        "bf16": GGUFTensorOut(type="BF16", shape=(4, 64), read=lambda: values.astype(ml_dtypes.bfloat16)),
        "odd": GGUFTensorOut(type="F32", shape=(3,), read=lambda: np.arange(3, dtype=np.float32)),
    }
    for kind in BLOCK_TYPES:
        info = GGUF_TYPES[TYPE_NUMBERS[kind]]
        blocks = rng.integers(0, 60, (4, 512 // info.block * info.block_bytes), np.uint8)  # finite in every type
        out[kind] = GGUFTensorOut(type=kind, shape=(4, 512), read=lambda blocks=blocks: blocks)
    return out


@pytest.fixture
def path(tmp_path: Path, rng: np.random.Generator) -> Path:
    write_gguf(tmp_path / "a.gguf", METADATA, tensors(rng))
    return tmp_path / "a.gguf"


def test_metadata_comes_back(path: Path) -> None:
    read = GGUFFile(path).metadata
    assert list(read) == list(METADATA)
    assert read["a.f32"] == 1e-5  # the decimal that was meant, not the nearest float32
    for key, value in METADATA.items():
        got = read[key]
        if isinstance(got, LazyStrings):
            assert (len(got), got.decode()) == (len(value), value)
        elif key != "a.f32":
            np.testing.assert_array_equal(got, value)


def test_tensors_come_back_bit_for_bit(path: Path, rng: np.random.Generator) -> None:
    file = GGUFFile(path)
    for name, tensor in tensors(np.random.default_rng(20_260_101)).items():
        assert file.raw(name).tobytes() == np.ascontiguousarray(tensor.read()).tobytes()
        packed = file.packed(name)
        assert packed.shape == tensor.shape
        assert packed.scheme == file.scheme(name) == Scheme.parse(tensor.type)
        for start, stop in ((0, packed.rows), (packed.rows // 2, packed.rows)):
            some, same = file.packed_rows(name, start, stop), packed.slice_rows(start, stop)
            assert some.shape == same.shape
            np.testing.assert_array_equal(decode(some), decode(same))
        file.release(name)
        if tensor.type in BLOCK_TYPES:
            assert to_gguf(packed) == file.raw(name).tobytes()
        else:
            np.testing.assert_array_equal(decode(packed), tensor.read().astype(np.float32))


def test_floats_are_views_of_the_file(path: Path) -> None:
    file = GGUFFile(path)
    assert np.shares_memory(file.packed("bf16").payload, file.raw("bf16"))


def test_the_reference_package_agrees(path: Path) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    theirs, ours = GGUFReader(path), GGUFFile(path)
    assert {t.name for t in theirs.tensors} == set(ours.entries)
    for tensor in theirs.tensors:
        assert tensor.data.tobytes() == ours.raw(tensor.name).tobytes()
        assert tuple(int(n) for n in reversed(tensor.shape)) == ours.entries[tensor.name].shape
        expected = dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(decode(ours.packed(tensor.name)), expected.reshape(-1, tensor.shape[0]).squeeze())
    assert theirs.fields["tokens"].contents() == METADATA["tokens"]
    assert theirs.fields["a.u64"].contents() == 2**64 - 1


def test_the_type_table_is_that_of_the_reference_package() -> None:
    from gguf.constants import GGML_QUANT_SIZES

    theirs = {int(kind): (kind.name, *size) for kind, size in GGML_QUANT_SIZES.items()}
    for number, kind in GGUF_TYPES.items():
        assert theirs[number] == (kind.name, kind.block, kind.block_bytes)


@pytest.mark.parametrize("kind", sorted(DECODED_TYPES))
def test_other_quantised_types_are_decoded(kind: str, tmp_path: Path, rng: np.random.Generator) -> None:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    info = next(t for t in GGUF_TYPES.values() if t.name == kind)
    raw = rng.integers(0, 60, (2, 3, 512 // info.block * info.block_bytes), np.uint8)
    write_gguf(tmp_path / "q.gguf", {}, {"x": GGUFTensorOut(type=kind, shape=(2, 3, 512), read=lambda: raw)})
    file = GGUFFile(tmp_path / "q.gguf")
    assert str(file.scheme("x")) == "float32"
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(decode(file.packed("x")), dequantize(raw, GGMLQuantizationType[kind]))


@pytest.mark.parametrize("kind", ["Q8_1", "Q8_K", "I32"])
def test_other_types_are_refused_with_a_list(kind: str, tmp_path: Path) -> None:
    info = next(t for t in GGUF_TYPES.values() if t.name == kind)
    raw = np.zeros(256 // info.block * info.block_bytes, np.uint8)
    write_gguf(tmp_path / "q.gguf", {}, {"x": GGUFTensorOut(type=kind, shape=(256,), read=lambda: raw)})
    with pytest.raises(CheckpointError, match=f"'x' has type {kind}") as caught:
        GGUFFile(tmp_path / "q.gguf").packed("x")
    assert "Q4_K" in str(caught.value.hint)


def u32(n: int) -> bytes:
    return struct.pack("<I", n)


def u64(n: int) -> bytes:
    return struct.pack("<Q", n)


def text(s: str | bytes) -> bytes:
    raw = s.encode() if isinstance(s, str) else s
    return u64(len(raw)) + raw


def head(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys)


def info(name: str = "x", axes: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + u32(len(axes)) + b"".join(map(u64, axes)) + u32(kind) + u64(offset)


BIG = 2**62
BAD = {
    "empty": (b"", "is empty"),
    "other file": (b"PK\3\4" + bytes(40), "instead of GGUF"),
    "only magic": (b"GGUF", "beyond the end"),
    "old version": (head(version=1) + bytes(40), "version 1 is not supported"),
    "future version": (head(version=9) + bytes(40), "version 9 is not supported"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + bytes(40), "big-endian GGUF version 3"),
    "many tensors": (head(BIG), "the limits are"),
    "many keys": (head(0, BIG), "the limits are"),
    "tensors that are not there": (head(1000), "beyond the end"),
    "keys that are not there": (head(0, 1000), "beyond the end"),
    "long key": (head(0, 1) + u64(BIG), "more than 65535"),
    "key beyond file": (head(0, 1) + u64(60_000) + b"abc", "beyond the end"),
    "key not UTF-8": (head(0, 1) + text(b"\xff\xfe") + u32(4) + u32(1), "not UTF-8"),
    "value type": (head(0, 1) + text("k") + u32(77) + bytes(8), "unknown value type 77"),
    "truth of 2": (head(0, 1) + text("k") + u32(7) + b"\2", "truth value 2"),
    "truths of 2": (head(0, 1) + text("k") + u32(9) + u32(7) + u64(1) + b"\2", "truth values"),
    "long string": (head(0, 1) + text("k") + u32(8) + u64(BIG), "beyond the end"),
    "long array": (head(0, 1) + text("k") + u32(9) + u32(4) + u64(BIG), "beyond the end"),
    "many strings": (head(0, 1) + text("k") + u32(9) + u32(8) + u64(BIG), "announces"),
    "string in array": (head(0, 1) + text("k") + u32(9) + u32(8) + u64(2) + u64(BIG) + u64(0), "beyond the end"),
    "nested array": (head(0, 1) + text("k") + u32(9) + u32(9) + u64(1) + bytes(20), "array of value type 9"),
    "array type": (head(0, 1) + text("k") + u32(9) + u32(99) + u64(1) + bytes(20), "array of value type 99"),
    "key twice": (head(0, 2) + (text("k") + u32(4) + u32(1)) * 2, "duplicate key"),
    "alignment": (head(0, 1) + text("general.alignment") + u32(4) + u32(33), "general.alignment is 33"),
    "alignment type": (head(0, 1) + text("general.alignment") + u32(8) + text("32"), "general.alignment"),
    "axes": (head(1) + text("x") + u32(BIG >> 40), "axes, more than 4"),
    "tensor type": (head(1) + info(kind=5), "unknown type 5"),
    "tensor overflow": (head(1) + info(axes=(BIG, BIG, BIG, BIG)) + bytes(64), "ends at byte"),
    "tensor cut short": (head(1) + info() + bytes(20), "ends at byte"),
    "partial block": (head(1) + info(axes=(31,), kind=8) + bytes(99), "does not fill blocks of 32"),
    "no axes for blocks": (head(1) + info(axes=(), kind=8) + bytes(99), "does not fill blocks of 32"),
    "odd offset": (head(1) + info(offset=8) + bytes(99), "not a multiple of 32"),
    "far offset": (head(1) + info(offset=2**63) + bytes(99), "ends at byte"),
    "tensor twice": (head(2) + info() + info(offset=32) + bytes(200), "duplicate tensor"),
    "overlap": (head(2) + info(axes=(16,)) + info("y", offset=32) + bytes(200), "'x' and 'y' overlap"),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD.keys())
def test_bad_files_are_named_for_what_they_are(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        GGUFFile(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_a_bad_string_inside_an_array_is_found_when_read(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(head(0, 1) + text("k") + u32(9) + u32(8) + u64(2) + text("ok") + text(b"\xff"))
    strings = GGUFFile(path).metadata["k"]
    assert isinstance(strings, LazyStrings)
    with pytest.raises(CheckpointError, match="string 1 of an array is not UTF-8"):
        strings.decode()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = tmp_path_factory.mktemp("fuzz") / "a.gguf"
    write_gguf(path, METADATA, tensors(np.random.default_rng(1)))
    return path, path.read_bytes()


@pytest.mark.thorough
@settings(max_examples=500)
@given(data=st.data())
def test_mutated_files_load_or_raise_checkpoint_error(valid: tuple[Path, bytes], data: st.DataObject) -> None:
    path, content = valid
    mutated = bytearray(content)
    for at in data.draw(st.lists(st.integers(0, 1100), max_size=4)):
        mutated[at] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(mutated[: data.draw(st.integers(1, len(mutated)))] if data.draw(st.booleans()) else mutated))
    try:
        file = GGUFFile(path)
        for value in file.metadata.values():
            if isinstance(value, LazyStrings):
                value.decode()
        for name in file.entries:
            with np.errstate(all="ignore"):
                assert isinstance(file.packed(name), Packed)
    except CheckpointError:
        pass


def test_empty_strings_in_great_number_are_only_counted(tmp_path: Path) -> None:
    path = tmp_path / "strings.gguf"
    path.write_bytes(head(0, 1) + text("k") + u32(9) + u32(8) + u64(250_000) + bytes(2_000_000))
    strings = GGUFFile(path).metadata["k"]
    assert isinstance(strings, LazyStrings)
    assert len(strings) == 250_000


def test_types_that_become_float32_are_counted(tmp_path: Path) -> None:
    out = {}
    for name, kind in (("a", "IQ2_S"), ("b", "IQ2_S"), ("c", "Q4_K")):
        raw = np.zeros(GGUF_TYPES[TYPE_NUMBERS[kind]].block_bytes, np.uint8)
        out[name] = GGUFTensorOut(type=kind, shape=(1, 256), read=lambda raw=raw: raw)
    write_gguf(tmp_path / "q.gguf", {}, out)
    assert decoded_types(GGUFFile(tmp_path / "q.gguf")) == {"IQ2_S": 2}


def test_half_a_surrogate_pair_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="half of a surrogate pair"):
        write_gguf(tmp_path / "s.gguf", {"a": "b\ud800"}, {})
    assert not (tmp_path / "s.gguf").exists()
