"""The linker and its unroll directive: text in, text out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.kernels import matrix_attention
from volumetric.devices.gpu.kernels.attention import AttentionShape
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.gemm_tiles import TILES, gemm
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.matrix_attention import AttentionTile
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.shaders import ShaderTarget, available, link, linker, read_shader
from volumetric.devices.gpu.shaders.dialects import DIALECTS, Dialect
from volumetric.devices.gpu.shaders.unroll import unroll

JOIN = {"WG": 64, "WIDTH4": 8}
MAP = {**JOIN, "ALPHA": 1.0, "BETA": 0.0}
SOFTMAX = {"WG": 64, "WIDTH": 8}
EMBEDDING = {"WG": 64, "K": 8, "PIECES": 2, "GROUPS": 0, "SCALE": 1.0}


def test_unroll_writes_a_block_for_each_round() -> None:
    text = unroll("//@unroll\nfor (var i = 1u; i < N; i++) { y[i] = x; }\nend;", {"N": 3})
    assert "".join(text.split()) == "{consti=1u;y[i]=x;}{consti=2u;y[i]=x;}end;"


def test_unroll_is_recursive_and_evaluates_bounds() -> None:
    source = (
        "//@unroll\nfor (var i = 0u; i < A / 4u; i++) {\n//@unroll\nfor (var j = i; j < 2u * B; j++) { f(i, j); } }"
    )
    text = unroll(source, {"A": 8, "B": 1})
    assert text.count("f(i, j);") == 3
    assert "for" not in text
    text = unroll(source.replace("2u * B", "B << (i + 1u)"), {"A": 8, "B": 1})
    assert text.count("f(i, j);") == 2 + 3
    with pytest.raises(SpecError, match="'j' is not a constant"):
        unroll(source.replace("A / 4u", "j"), {"A": 8, "B": 1})


def test_unroll_of_no_rounds_leaves_nothing() -> None:
    assert unroll("a;\n//@unroll\nfor (var i = 0u; i < 0u; i++) { b; }c;", {}).split() == ["a;", "c;"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("//@unroll\nwhile (true) { }", "not followed by a counting loop"),
        ("//@unroll\nfor (var i = 0u; i < 4u; j++) { }", "not followed by a counting loop"),
        ("//@unroll\nfor (var i = 0u; i < M; i++) { }", "'M' is not a constant"),
        ("//@unroll\nfor (var i = 0u; i < F; i++) { }", "'F' is not a constant"),
        ("//@unroll\nfor (var i = 0u; i < 1u / Z; i++) { }", "is not a constant"),
        ("//@unroll\nfor (var i = 0u; i < 4u; i++) { if (x) { break; } }", "must not break"),
        ("//@unroll\nfor (var i = 0u; i < 4u; i++) { {", "no closing brace"),
        ("//@unroll\nfor (var i = 0u; i < 1000u; i++) { }", "over 256"),
    ],
)
def test_unroll_rejects(source: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        unroll(source, {"F": 2.0, "Z": 0})


def test_text_starts_with_the_constants_in_their_types() -> None:
    text = link("map", constants=MAP, target=ShaderTarget()).text
    assert text.startswith("const WG: u32 = 64u;\nconst WIDTH4: u32 = 8u;\nconst ALPHA: f32 = 1.0f;\n")
    assert "//" not in text


def test_only_one_reduce_prelude_is_linked() -> None:
    with_lanes = link("softmax", constants=SOFTMAX, target=ShaderTarget(subgroup_size=32)).text
    without = link("softmax", constants=SOFTMAX, target=ShaderTarget()).text
    assert "subgroupShuffleXor" in with_lanes
    assert "const SUBGROUP: u32 = 32u;" in with_lanes
    assert "subgroup" not in without


def test_what_a_kernel_does_not_reach_is_left_out() -> None:
    text = link("join", constants=JOIN, target=ShaderTarget(subgroup_size=32)).text
    assert "fn team_sum" not in text
    assert "var<workgroup>" not in text
    reduced = link("softmax", constants=SOFTMAX, target=ShaderTarget(subgroup_size=32))
    assert "fn team_max" in reduced.text
    assert "fn lane_max" in reduced.text
    assert "published" not in reduced.text
    assert reduced.workgroup_bytes == 4 * (64 // 32 + 1)


def test_extensions_are_enabled_in_the_dialect_that_wants_it_and_where_they_are_used() -> None:
    tint, naga = (ShaderTarget(subgroup_size=32, dialect=dialect) for dialect in ("tint", "naga"))
    assert link("softmax", constants=SOFTMAX, target=tint).text.startswith("enable subgroups;\n")
    assert "enable" not in link("softmax", constants=SOFTMAX, target=naga).text
    assert "enable" not in link("join", constants=JOIN, target=tint).text
    assert "enable" not in link("softmax", constants=SOFTMAX, target=ShaderTarget(dialect="tint")).text
    probe = link("probe_subgroup", constants={"WG": 128}, target=ShaderTarget(dialect="tint"))
    assert probe.text.startswith("enable subgroups;\n")


@pytest.mark.parametrize(("dialect", "directives"), [("naga", ""), ("tint", "enable subgroups;\n")])
def test_the_text_of_a_module_in_each_dialect(dialect: Dialect, directives: str) -> None:
    """The whole text: what is meant to change it changes this file, too."""
    target = ShaderTarget(subgroup_size=32, dialect=dialect)
    text = (Path(__file__).parent / "softmax_module.wgsl").read_text(encoding="utf-8")
    assert link("softmax", constants=SOFTMAX, target=target).text == directives + text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_names_the_extensions_that_a_text_uses(dialect: Dialect) -> None:
    header = DIALECTS[dialect].header
    assert header("let a = 1.0f;") == ""
    for halves in ("var a: f16;", "let v = vec4h();", "let x = 1.5h;"):
        assert header(halves) == "enable f16;\n"
    both = header("fn f(x: f16) -> f16 { return subgroupAdd(x); }")
    assert both == "enable f16;\n" + ("enable subgroups;\n" if dialect == "tint" else "")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_matrix_units_in_each_dialect(dialect: Dialect) -> None:
    """The same kernel with each dialect's fragments, whole in a file of its name.

    Tint compiles it (`test_dawn`). No naga does here: that of wgpu-native 29 refuses the directive "in the current
    environment", so its text is held to https://github.com/gfx-rs/wgpu/blob/trunk/docs/api-specs/cooperative_matrix.md.
    """
    caps = Caps(subgroup_size=32, immediates=True, max_workgroup=1024, max_shared=49152, matrix_units=True)
    shape = AttentionShape(heads=2, kv_heads=1, head_dim=64, context=64, scale=0.125)
    dispatch = matrix_attention.rows(shape, caps, AttentionTile(rows=32))
    target = ShaderTarget(subgroup_size=32, immediates=True, dialect=dialect)
    text = link("matrix_attend", constants=dispatch.constants, preludes=dispatch.preludes, target=target).text
    golden = (Path(__file__).parent / f"matrix_units_{dialect}.wgsl").read_text(encoding="utf-8")
    directives, fragments = golden.split("\n\n")
    assert text.startswith(f"{directives}\nconst ")
    assert fragments in text
    other = "coop" if dialect == "tint" else "subgroup_matrix"
    assert other not in text


def test_arguments_are_immediate_data_or_a_uniform_buffer() -> None:
    uniform = link("embedding", constants=EMBEDDING, preludes=("dtype/float32",), target=ShaderTarget())
    immediate = link(
        "embedding", constants=EMBEDDING, preludes=("dtype/float32",), target=ShaderTarget(immediates=True)
    )
    assert "@group(0) @binding(15) var<uniform> args: Args;" in uniform.text
    assert "var<immediate> args: Args;" in immediate.text
    assert uniform.args_bytes == immediate.args_bytes == 8
    assert [b.name for b in uniform.bindings] == ["ids", "weights", "y", "ctl", "args"]
    assert [b.name for b in immediate.bindings] == ["ids", "weights", "y", "ctl"]
    assert "scales" in immediate.unused


def test_bindings_come_from_the_text() -> None:
    linked = link("join", constants=JOIN, target=ShaderTarget())
    assert [(b.index, b.name, b.access) for b in linked.bindings] == [
        (0, "a", "read"),
        (1, "b", "read"),
        (2, "y", "read_write"),
        (14, "ctl", "uniform"),
    ]
    assert linked.args_bytes == 0


def test_unknown_files_are_named() -> None:
    with pytest.raises(SpecError, match="unary/swish") as error:
        link("join", constants=JOIN, preludes=("unary/swish",), target=ShaderTarget())
    assert "silu" in (error.value.hint or "")


@pytest.mark.parametrize("value", [-1, 2**32, float("inf"), float("nan")])
def test_constants_that_wgsl_cannot_hold(value: float) -> None:
    with pytest.raises(SpecError, match="shader constant ALPHA"):
        link("map", constants={**MAP, "ALPHA": value}, target=ShaderTarget())


def test_every_kernel_stays_within_eight_storage_buffers() -> None:
    """WebGPU guarantees eight storage buffers to a shader."""
    for name in available():
        for source in ("source/rows", "source/partials"):
            text = read_shader(name) + (read_shader(source) if "x_load4(" in read_shader(name) else "")
            assert text.count("var<storage") <= 8, f"{name} with {source}"


def test_no_kernel_enables_subgroups() -> None:
    """Naga rejects the directive though it has the functions."""
    for folder in ("", "dtype", "unary", "kv", "operand", "source", "sums", "matrix", "tile", "queries"):
        for name in available(folder):
            assert not re.search(r"^\s*enable\b", read_shader(f"{folder}/{name}" if folder else name), re.MULTILINE), (
                name
            )


def test_workgroup_memory_is_counted() -> None:
    shape = MatmulShape(k=576, n=64, format=FORMATS["float16"])
    for tile in TILES:
        dispatch = gemm(shape, Caps(subgroup_size=32), tile, first=0, units=64)
        linked = link(
            "gemm", constants=dispatch.constants, preludes=dispatch.preludes, target=ShaderTarget(subgroup_size=32)
        )
        assert 0 <= linked.workgroup_bytes - tile.shared <= 2 * 4 * (tile.workgroup // 32 + 1)


UNKNOWN = "var<workgroup> a: array<mat4x4<f32>, 3>;\n@compute @workgroup_size(1) fn main() { _ = a[0]; }\n"


def test_an_unknown_size_of_workgroup_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker, "read_shader", lambda name: UNKNOWN)
    with pytest.raises(SpecError, match="workgroup variable a"):
        link("join", constants={}, target=ShaderTarget())
