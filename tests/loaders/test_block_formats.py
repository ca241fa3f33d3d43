"""Block formats from GGUF through networks, native checkpoints and GGUF again: the same bytes throughout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volumetric.dtypes import BLOCK_FORMATS, Scheme, decode, to_gguf
from volumetric.layers import Dense
from volumetric.loaders.gguf import GGUFFile
from volumetric.loaders.gguf_write import GGUFTensorOut, write_gguf
from volumetric.loaders.native_checkpoint import read_native, save_native
from volumetric.loaders.target_schemes import scheme_that_fits
from volumetric.network import Network, Params
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import WeightStore


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_bytes_of_a_gguf_tensor_survive_a_native_checkpoint(name: str, tmp_path: Path) -> None:
    blocks, shape = BLOCK_FORMATS[name], (3, 512)
    raw = np.random.default_rng(1).integers(0, 60, (3, blocks.row_bytes(512)), np.uint8)
    write_gguf(tmp_path / "a.gguf", {}, {"x": GGUFTensorOut(type=blocks.gguf_type, shape=shape, read=lambda: raw)})
    file = GGUFFile(tmp_path / "a.gguf")
    packed = file.packed("x")
    assert str(packed.scheme) == str(file.scheme("x")) == name
    np.testing.assert_array_equal(decode(file.packed_rows("x", 1, 3)), decode(packed)[1:])
    network = Network(
        grid=Grid(1), layers={Coord(0): Dense(in_features=512, out_features=3, bias=False)}, input_shape=(512,)
    )
    key = next(iter(network.param_specs()))
    save_native(tmp_path / "native", network, Params({key: WeightStore.from_packed(packed)}))
    _, params, _ = read_native(tmp_path / "native")
    assert str(params[key].scheme) == name
    assert to_gguf(params[key].packed()) == raw.tobytes()


@pytest.mark.parametrize(
    ("name", "k", "taken"),
    [
        ("q4_k", 512, "q4_k"),
        ("q4_k", 576, "q5_0"),
        ("q5_k", 576, "q5_1"),
        ("q6_k", 576, "int8:g32"),
        ("q2_k", 576, "iq4_nl"),
        ("tq2_0", 576, "int4:g32"),
        ("q4_k", 33, "int8:g32"),
        ("int4:g32", 33, "int4:g32"),
    ],
)
def test_rows_that_do_not_fill_blocks_take_what_llama_cpp_takes(name: str, k: int, taken: str) -> None:
    assert str(scheme_that_fits(Scheme.parse(name), (4, k))) == taken
