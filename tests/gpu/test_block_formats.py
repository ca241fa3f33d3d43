"""Block formats, and codes of 8 bits, on the GPU: all kernels that read weights, against the codec."""

from __future__ import annotations

import numpy as np
import pytest

from tests.blocks import random_blocks
from tests.gpu.harness import Kernel, assert_close, in_scheme
from tests.gpu.test_matmul import BYTES, Product
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.block_layout import LAYOUTS
from volumetric.devices.gpu.kernels.gemm_tiles import TILES
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.dtypes import Packed, Scheme, decode

each_format = pytest.mark.parametrize("scheme", [*LAYOUTS, *BYTES])
FIELDS = {"norm": "rms", "norm_eps": 1e-5, "norm_weight": True, "bias": True, "residual": True}


@pytest.mark.thorough
@each_format
@pytest.mark.parametrize("k", [587])
def test_one_row(native_kernel: Kernel, rng: np.random.Generator, scheme: str, k: int) -> None:
    product = Product(native_kernel, rng, 1, scheme, n=37, k=k, **FIELDS)
    assert_close(product.matvec(), product.expected())


@pytest.mark.thorough
@each_format
def test_several_rows(native_kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    """In tiles, which read weights as embeddings do, or a few at a time, as one row does: one of both for a format."""
    product = Product(native_kernel, rng, 2, scheme, n=19, k=267)
    tiled = [*LAYOUTS, *BYTES].index(scheme) % 2
    assert_close(product.gemm(TILES[-1]) if tiled else product.batch(), product.expected())


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", [*LAYOUTS, "uint8:g32"])
def test_int8_activations(native_kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    product = Product(native_kernel, rng, 1, scheme, n=21, k=587, int8=True)
    x = np.pad(product.x[0], (0, -product.x.size % 32)).reshape(-1, 32)
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    rounded = (scale * np.round(x / scale)).astype(np.float32).reshape(-1)[: product.x.size]
    got = product.matvec()
    product.meet(rounded, in_scheme(product.given, scheme))
    assert_close(got, product.expected(), 1e-5)


@each_format
def test_embeddings(native_kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    width = 299
    buffers, table = native_kernel.weights(rng.standard_normal((7, width)).astype(np.float32), scheme)
    y = native_kernel.empty(3, 300)
    ids = native_kernel.array(np.array([6, 0, 3], np.uint32))
    dispatch = elementwise.embedding(width=width, layout=FORMATS[scheme], scale=2.0, first=0, units=7)
    native_kernel.run((dispatch, {**buffers, "ids": ids, "y": y, "ctl": native_kernel.control(0, 3)}), rows=3)
    assert_close(native_kernel.read(y, 3, width), 2 * table[[6, 0, 3]])


@pytest.mark.parametrize("scheme", LAYOUTS)
@pytest.mark.parametrize("k", [1, 256, 4100])
def test_nothing_grows_but_by_padding(scheme: str, k: int, rng: np.random.Generator) -> None:
    packed, layout = random_blocks(scheme, (3, k), rng), FORMATS[scheme]
    pieces, beside = layout.lay_out(packed)
    assert beside is not None
    assert pieces.nbytes == 3 * layout.row_bytes(k)
    assert beside.nbytes == 3 * layout.scale_bytes(k)
    if k == 4100:
        most = 1.25 if scheme == "tq1_0" else 1.03  # its digits in base 3 take two bits
        assert pieces.nbytes + beside.nbytes <= most * Scheme.parse(scheme).nbytes((3, k))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_every_float8_is_the_codec_s(native_kernel: Kernel, name: str) -> None:
    """All 256 codes, those below the normal numbers, infinity and NaN included."""
    scheme = Scheme.parse(f"{name}:g32")
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    scales = np.ldexp(np.ones((8, 1), np.float32), np.arange(-4, 4)[:, None])
    packed = Packed(scheme=scheme, shape=(8, 32), payload=codes.view(np.uint32), scales=scales)
    pieces, beside = FORMATS[str(scheme)].lay_out(packed)
    assert beside is not None
    y = native_kernel.empty(8, 32)
    buffers = {"weights": native_kernel.array(pieces), "scales": native_kernel.array(beside), "y": y}
    buffers |= {"ids": native_kernel.array(np.arange(8, dtype=np.uint32)), "ctl": native_kernel.control(0, 8)}
    dispatch = elementwise.embedding(width=32, layout=FORMATS[str(scheme)], scale=1.0, first=0, units=8)
    native_kernel.run((dispatch, buffers), rows=8)
    np.testing.assert_array_equal(native_kernel.read(y, 8, 32), decode(packed, np.float32))
