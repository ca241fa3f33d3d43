"""Block formats: the bytes of a GGUF file kept, and decoded to the very numbers of ggml."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from volumetric.base._typing import F32Array
from volumetric.base.errors import DTypeError, ShapeError
from volumetric.dtypes import BLOCK_FORMATS, BlockFormat, Packed, Scheme, decode, decode_rows, from_gguf, to_gguf

each_format = pytest.mark.parametrize("blocks", BLOCK_FORMATS.values(), ids=str)


def random_bytes(blocks: BlockFormat, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rows = int(np.prod(shape[:-1]))
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks.row_bytes(shape[-1])), np.uint8)


def ggml(raw: np.ndarray, blocks: BlockFormat) -> F32Array:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    with np.errstate(all="ignore"):
        return dequantize(raw, GGMLQuantizationType[blocks.gguf_type])


def assert_same_bits(a: F32Array, b: F32Array) -> None:
    """Equal to the last bit, but for the payload of NaN."""
    assert a.dtype == b.dtype == np.float32
    same = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    assert same.all()


@each_format
def test_any_bytes_decode_to_the_numbers_of_ggml(blocks: BlockFormat) -> None:
    raw = random_bytes(blocks, (40, 3, 1024))
    packed = from_gguf(raw, blocks.gguf_type, (40, 3, 1024))
    assert str(packed.scheme) == blocks.name
    assert_same_bits(decode(packed), ggml(raw, blocks).reshape(40, 3, 1024))
    with np.errstate(all="ignore"):
        wide, brain = decode(packed, np.float64), decode(packed, ml_dtypes.bfloat16)
    np.testing.assert_array_equal(wide, decode(packed))
    finite = np.isfinite(decode(packed))
    np.testing.assert_array_equal(brain[finite], decode(packed)[finite].astype(ml_dtypes.bfloat16))


def one_block(name: str, fields: dict[int, list[int]]) -> F32Array:
    """Decode one block of zeros but for these bytes."""
    blocks = BLOCK_FORMATS[name]
    raw = np.zeros((1, blocks.block_bytes), np.uint8)
    for at, values in fields.items():
        raw[0, at : at + len(values)] = values
    return decode(from_gguf(raw, blocks.gguf_type, (1, blocks.size)))[0]


def test_a_format_of_ours() -> None:
    """Q3_NL: low bits of codes j, j + 8, j + 16, j + 24 in byte 1 + j, high ones of j … j + 28 in byte 9 + j % 4."""
    scheme = Scheme.parse("Q3_NL")
    blocks = scheme.blocks
    assert blocks is not None
    raw = np.zeros((1, 13), np.uint8)
    raw[0, [0, 1, 9]] = (
        22 * 8 + 4,
        0b1101,
        0b10,
    )  # a scale of 1.5; codes 1 and 3 of numbers 0 and 8; 4 more for number 4
    values = blocks.decode(raw)[0]
    assert values[[0, 8, 4, 1]].tolist() == [1.5 * -70, 1.5 * -12, 1.5 * 12, 1.5 * -127]
    any_bytes = random_bytes(blocks, (300, 64))
    assert blocks.join(blocks.split(any_bytes.reshape(-1, 13))).tobytes() == any_bytes.tobytes()
    assert not blocks.decode(np.zeros((1, 13), np.uint8)).any()
    assert scheme == pickle.loads(pickle.dumps(scheme)) == copy.deepcopy(scheme)
    assert (scheme.gguf_type, scheme.bits_per_weight((1, 4096))) == (None, 3.25)
    with pytest.raises(DTypeError, match="cannot be stored"):
        from_gguf(raw, "Q3_NL", (1, 32))
    with pytest.raises(DTypeError, match="q3_nl has no GGUF block form"):
        to_gguf(Packed(scheme=scheme, shape=(1, 32), payload=np.zeros((1, 4), np.uint32)))


ONE = [0x00, 0x3C]  # 1.0 in float16


def test_blocks_written_by_hand() -> None:
    """One number each where the layout in ggml-common.h says it must be."""
    q4_k = one_block("q4_k", {0: ONE, 2: ONE, 4: [3, 0, 0, 0, 2], 16: [0x75]})
    assert (q4_k[0], q4_k[1], q4_k[32]) == (3 * 5 - 2, -2, 0)  # group 1 has scale 0 and min 0
    fifth = one_block("q4_k", {0: ONE, 4: [0x40], 12: [0x05], 16 + 64: [9]})
    assert fifth[128] == (5 | 16) * 9  # scale 4: low bits in byte 12, upper bits over scale 0
    q5_k = one_block("q5_k", {0: ONE, 4: [1], 16: [1], 48: [2]})
    assert (q5_k[0], q5_k[1]) == (18, 0)
    q6_k = one_block("q6_k", {208: ONE, 192: [255], 0: [0x0F], 128: [0x03]})
    assert (q6_k[0], q6_k[1]) == (-(63 - 32), 32)
    q5_0 = one_block("q5_0", {0: ONE, 2: [1], 6: [2]})
    assert (q5_0[0], q5_0[1]) == (2, -16)
    q5_1 = one_block("q5_1", {0: ONE, 2: ONE, 4: [1], 8: [0x32]})
    assert (q5_1[0], q5_1[16]) == (19, 4)
    q2_k = one_block("q2_k", {80: ONE, 82: ONE, 0: [0x25], 16: [3]})
    assert (q2_k[0], q2_k[1], q2_k[16]) == (3 * 5 - 2, -2, 0)
    q3_k = one_block("q3_k", {108: ONE, 96: [1], 104: [2], 0: [1], 32: [3]})
    assert (q3_k[0], q3_k[1]) == (3, -4)  # scale (1 | 2 << 4) − 32
    assert one_block("iq4_nl", {0: ONE, 2: [0x10]})[[0, 16]].tolist() == [-127, -104]
    assert one_block("iq4_xs", {0: ONE, 2: [2], 4: [1], 8: [8]})[0] == 1  # scale (1 | 2 << 4) − 32
    assert one_block("mxfp4", {0: [128], 1: [0xF7]})[[0, 16]].tolist() == [12, -12]
    assert one_block("mxfp4", {0: [0], 1: [2]})[0] == 2.0**-127
    assert one_block("tq2_0", {64: ONE, 0: [0b10]})[[0, 1]].tolist() == [1, -1]
    assert one_block("tq1_0", {52: ONE, 0: [128]})[[0, 32]].tolist() == [0, 0]  # 0.1111… in base 3


@each_format
def test_bytes_come_back_and_are_not_copied_where_rows_are_words(blocks: BlockFormat) -> None:
    shape = (5, 2 * blocks.size)
    raw = random_bytes(blocks, shape)
    packed = from_gguf(raw, blocks.gguf_type, shape)
    assert to_gguf(packed) == raw.tobytes()
    assert np.shares_memory(packed.payload, raw) == (blocks.row_bytes(shape[1]) % 4 == 0)
    assert packed.nbytes == packed.scheme.nbytes(shape) == 5 * 4 * -(-blocks.row_bytes(shape[1]) // 4)
    odd = np.concatenate([np.zeros(1, np.uint8), raw.ravel()])[1:]  # starts at no word
    assert to_gguf(from_gguf(odd, blocks.gguf_type, shape)) == raw.tobytes()


@each_format
def test_rows_are_cut_and_gathered_without_decoding(blocks: BlockFormat) -> None:
    shape = (6, 3 * blocks.size)
    packed = from_gguf(random_bytes(blocks, shape), blocks.gguf_type, shape)
    values = decode(packed)
    order = np.array([4, 0, 4])
    np.testing.assert_array_equal(decode(packed.slice_rows(1, 4)), values[1:4])
    np.testing.assert_array_equal(decode(packed.take_rows(order)), values[order])
    np.testing.assert_array_equal(decode_rows(packed, order), values[order])
    assert packed.codes().shape == shape
    assert packed.codes().dtype == np.int8


@each_format
def test_a_row_may_end_within_a_block(blocks: BlockFormat) -> None:
    k = blocks.size + 5
    raw = random_bytes(blocks, (3, k))
    padded = np.zeros((3, 4 * Scheme.parse(blocks.name).words_per_row(k)), np.uint8)
    padded[:, : raw.shape[1]] = raw
    packed = Packed(scheme=Scheme.parse(blocks.name), shape=(3, k), payload=padded.view(np.uint32))
    assert_same_bits(decode(packed), ggml(raw, blocks)[:, :k])
    with pytest.raises(ShapeError, match=f"multiple of {blocks.size}"):
        to_gguf(packed)


@each_format
def test_a_format_is_a_scheme_of_that_name(blocks: BlockFormat) -> None:
    scheme = Scheme.parse(blocks.gguf_type)
    assert str(scheme) == blocks.name
    assert scheme == Scheme.parse(blocks.name) == pickle.loads(pickle.dumps(scheme)) == copy.deepcopy(scheme)
    assert hash(scheme) == hash(Scheme.parse(blocks.name))
    assert (scheme.gguf_type, scheme.has_scale, scheme.has_offset) == (blocks.gguf_type, True, False)
    assert scheme.groups_per_row(512) == 0
    assert 1 < scheme.bits_per_weight((4, 4096)) < 7


def test_what_does_not_fit_is_refused() -> None:
    raw = np.zeros(144, np.uint8)
    with pytest.raises(ShapeError, match="takes 288 bytes, got 144"):
        from_gguf(raw, "Q4_K", (2, 256))
    with pytest.raises(DTypeError, match="must be uint8"):
        from_gguf(raw.view(np.int8), "Q4_K", (1, 256))  # pyright: ignore[reportArgumentType]
    with pytest.raises(DTypeError, match="no other type or group"):
        Scheme(dtype=BLOCK_FORMATS["q4_k"].dtype, group=32, blocks=BLOCK_FORMATS["q4_k"])
    with pytest.raises(DTypeError, match="does not consist of blocks"):
        Packed.from_array(np.zeros((2, 2), np.float32)).raw_blocks()
