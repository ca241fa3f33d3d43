"""Every kernel compiles for every weight format and activation, with and without subgroups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.gpu_context import BufferSlice
from volumetric.devices.gpu.kernels import attention, elementwise, gemm_tiles, matmul
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.gemm_tiles import TILES
from volumetric.devices.gpu.kernels.matmul import MatmulShape, SplitPartials
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.shaders import ShaderTarget, available, link, read_shader
from volumetric.graph.numeric.activations import ACTIVATIONS
from volumetric.graph.operations.elementwise import UNARY


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", FORMATS)
def test_matrix_kernels_compile(fallback_device: GpuDevice, scheme: str) -> None:
    context, layout = fallback_device.context, FORMATS[scheme]
    plain = MatmulShape(k=96, n=20, format=layout, norm="rms", norm_weight=True, residual=True, softcap=9.0)
    gated = MatmulShape(k=50, n=12, format=layout, activation="silu", gated=True, norm="layer", bias=True)
    partials = SplitPartials(splits=3, heads=4, head_dim=24)
    dispatches = [
        matmul.matvec(plain, context.caps, first=0, units=20, source=partials),
        matmul.matvec(gated, context.caps, first=0, units=12),
        matmul.matvec(replace(gated, int8=True), context.caps, first=0, units=12),
        gemm_tiles.gemm(gated, context.caps, TILES[-1], first=0, units=12),
        gemm_tiles.gemm(plain, context.caps, TILES[2], first=0, units=20),
    ]
    for dispatch in dispatches:
        context.pipeline(dispatch)


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["float32", "q4_k"])
def test_activations_of_products_compile(fallback_device: GpuDevice, scheme: str) -> None:
    """With a format of each kind: an activation is applied to sums, which are float32 whatever the weights are."""
    context = fallback_device.context
    for name in ACTIVATIONS:
        shape = MatmulShape(k=96, n=20, format=FORMATS[scheme], norm="rms", residual=True, activation=name)
        context.pipeline(matmul.matvec(shape, context.caps, first=0, units=20))
        context.pipeline(gemm_tiles.gemm(shape, context.caps, TILES[2], first=0, units=20))


@pytest.mark.thorough
def test_the_other_kernels_compile(device: GpuDevice) -> None:
    caps = device.context.caps
    dispatches = [elementwise.unary(width=7, name=name) for name in ACTIVATIONS]
    for layout in FORMATS.values():
        dispatches.append(elementwise.embedding(width=40, layout=layout, scale=2.0, first=0, units=9))
        dispatches.append(elementwise.position_embedding(width=40, layout=layout, offset=2, limit=9))
    for half in (False, True):
        shape = AttentionShape(
            heads=6, kv_heads=2, head_dim=20, context=33, scale=0.2, rotary=8, qk_norm="rms", softcap=3.0, half=half
        )
        dispatches += [attention.append(shape), attention.rows(shape, caps)]
        dispatches += [attention.split(shape, caps), attention.combine(shape, caps)]
    dispatches += [
        elementwise.norm(width=5, groups=2, kind="rms", eps=1e-5, unit_offset=True, weight=True, bias=False),
        elementwise.softmax(width=9),
        elementwise.binary(width=9, name="add"),
        elementwise.concat(width=3, at=2, out_width=9),
        elementwise.argmax(width=9, final=False),
        elementwise.argmax(width=9, final=True),
        gemm_tiles.row_stats(MatmulShape(k=9, n=3, format=FORMATS["float32"], norm="layer")),
    ]
    for dispatch in dispatches:
        device.context.pipeline(dispatch)


def test_every_format_and_activation_has_a_shader_file() -> None:
    assert {f"dtype/{name}" for name in available("dtype")} == {layout.prelude for layout in FORMATS.values()}
    shared = {name for layout in FORMATS.values() for name in layout.preludes if name != layout.prelude}
    assert {f"block/{name}" for name in available("block")} == shared
    assert set(available("unary")) == set(UNARY)
    for name in ACTIVATIONS:
        assert "fn apply(" in read_shader(f"unary/{name}")


WITH_MINIMA = ("q2_k", "q4_k", "q5_k", "q5_1")
"""Block formats that have a minimum beside each scale."""


@pytest.mark.parametrize("scheme", FORMATS)
def test_shader_and_table_agree_on_the_piece(scheme: str) -> None:
    layout = FORMATS[scheme]
    shape = MatmulShape(k=64, n=8, format=layout)
    dispatch = matmul.matvec(shape, Caps(), first=0, units=8)
    linked = link(dispatch.kernel, constants=dispatch.constants, preludes=dispatch.preludes, target=ShaderTarget())
    assert f"const PIECE: u32 = {layout.piece}u;" in linked.text
    has_offset = layout.affine or scheme in WITH_MINIMA
    assert ("const HAS_OFFSET: bool = true;" in linked.text) == has_offset


def test_no_buffer_is_on_two_writable_bindings(native_device: GpuDevice) -> None:
    """WebGPU forbids it, unused bindings included; wgpu lets it pass."""
    context = native_device.context
    dispatch = elementwise.argmax(width=9, final=True)
    context.bind(dispatch, {})
    buffer = context.buffer(64, "both")
    with pytest.raises(DeviceError, match="two results of argmax would be written to one place"):
        context.bind(dispatch, {"winners": buffer, "token": buffer})
    apart = {"winners": BufferSlice(buffer, 0, 32), "token": BufferSlice(buffer, 32, 32)}
    context.bind(dispatch, apart)
    with pytest.raises(DeviceError, match="one place"):
        context.bind(dispatch, {**apart, "control": BufferSlice(buffer, 32, 16)})
    context.free(buffer)
