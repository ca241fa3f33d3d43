"""Branches that constants switch off, and bindings that nothing mentions, are left out of modules; results stay."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.networks import tiny_llama
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.matmul import MatmulShape, matvec
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.devices.gpu.shaders import ShaderTarget, link, linker
from volumetric.devices.gpu.shaders.constant_expressions import constant_truth
from volumetric.devices.gpu.shaders.dead_branches import drop_dead_branches, drop_unused_bindings
from volumetric.network import initialise
from volumetric.run import RunOptions, lower

KNOWN = {"N": 2, "ON": True, "OFF": False, "CAP": 0.0}
CONDITIONS = [
    ("ON", True),
    ("!ON", False),
    ("N == 2u", True),
    ("N != 2u || OFF", False),
    ("N / 2u > 1u", False),
    ("CAP > 0.0", False),
    ("0.5f < CAP", False),
    ("OFF && lid == 0u", False),
    ("lid == 0u && OFF", False),
    ("next() && OFF", None),
    ("ON || next()", True),
    ("ON && lid == 0u", None),
    ("lid == 0u", None),
    ("other", None),
    ("N", None),
    ("N == 0x2u", None),
    ("(ON && N >= 2u) || lid == 0u", True),
]


@pytest.mark.parametrize(("condition", "value"), CONDITIONS)
def test_the_value_of_a_condition_as_far_as_constants_decide_it(condition: str, value: bool | None) -> None:
    assert constant_truth(condition, KNOWN) is value


CHAINS = [
    ("if (OFF) { a; } b;", "b;"),
    ("if (ON) { a; } b;", "if(ON){a;}b;"),
    ("if (OFF) { return 1; } b;", "b;"),
    ("if (OFF) { a; } else { b; }", "{b;}"),
    ("if (ON) { a; } else { b; }", "{a;}"),
    ("if (OFF) { a; } else if (x) { b; } else { c; }", "if(x){b;}else{c;}"),
    ("if (x) { a; } else if (OFF) { b; }", "if(x){a;}"),
    ("if (x) { a; } else if (ON) { b; } else { c; }", "if(x){a;}else{b;}"),
    ("if (ON) { return a; } else { return b; }", "if(ON){returna;}else{returnb;}"),
    ("if (x) { if (OFF) { a; } b; }", "if(x){b;}"),
    ("if (f(OFF, (1))) { a; }", "if(f(OFF,(1))){a;}"),
    ("if (OFF) == x { if (OFF) { a; } }", "if(OFF)==x{}"),
    ("let OFF = x; if (OFF) { a; }", "letOFF=x;if(OFF){a;}"),
    ("fn f(OFF: bool) { if (OFF) { a; } }", "fnf(OFF:bool){if(OFF){a;}}"),
]


@pytest.mark.parametrize(("text", "rest"), CHAINS)
def test_false_branches_are_removed(text: str, rest: str) -> None:
    assert "".join(drop_dead_branches(text, KNOWN).split()) == rest


def test_only_bindings_that_nothing_mentions_are_removed() -> None:
    lines = [f"@group(0) @binding({i}) var<storage, read> {name}: array<u32>;\n" for i, name in enumerate("xyz")]
    text, unused = drop_unused_bindings("".join(lines) + "fn main() { let a = x[0] + b.y; }")
    assert unused == {"y", "z"}
    assert text == lines[0] + "fn main() { let a = x[0] + b.y; }"


@pytest.mark.parametrize("bias", [False, True])
def test_a_product_binds_what_its_variant_reads(bias: bool) -> None:
    shape = MatmulShape(k=64, n=8, format=FORMATS["float16"], norm="rms", norm_weight=True, bias=bias)
    dispatch = matvec(shape, Caps(), first=0, units=8)
    linked = link(dispatch.kernel, constants=dispatch.constants, preludes=dispatch.preludes, target=ShaderTarget())
    names = {binding.name for binding in linked.bindings}
    assert names == {"x", "weights", "norm_params", "y"} | ({"bias"} if bias else set())
    assert {"scales", "residual"} <= linked.unused
    assert not any(re.search(rf"\b{name}\b", linked.text) for name in linked.unused)


@pytest.mark.thorough
def test_logits_have_the_same_bits_with_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_llama()
    params, tokens = initialise(network, 3), np.arange(9, dtype=np.int32)

    def logits() -> list[np.ndarray]:
        executable = GpuDevice().compile(lower(network), params, RunOptions(context=40))
        state = executable.new_state()
        rows = [np.asarray(executable.forward(state, part)) for part in (tokens, tokens[:1], tokens[:1])]
        executable.close()
        return rows

    lean = logits()
    monkeypatch.setattr(linker, "drop_dead_branches", lambda text, constants: text)
    monkeypatch.setattr(linker, "drop_unused_bindings", lambda text: (text, frozenset()))
    for one, other in zip(lean, logits(), strict=True):
        assert one.tobytes() == other.tobytes()
