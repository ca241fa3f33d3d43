"""Choice of instructions: the feature table, and all kernels built for other machines in child processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from volumetric.devices.cpu.kernels.bytedot import ByteDot
from volumetric.devices.cpu.kernels.cpu_target import CpuTarget, describe, resolve_features
from volumetric.devices.cpu.kernels.llvm_emitter import I32X, I64, Emitter

BLOCKS = "(opened_panels and {} and not exact)"
FEW = "(48-200 and tile and not exact)"
KERNELS = "(extreme or (48-200 and (tile or (few_rows and int)) and not exact))"
"""Products of few rows with floats are float tiles of other sizes."""


@pytest.mark.parametrize(
    ("cpu", "changes", "dot", "registers"),
    [
        ("znver4", "", "vnni512", 32),
        ("znver4", "-avx512vnni", "avx2", 32),
        ("znver4", "-avx512f", "avx2", 8),
        ("skylake-avx512", "", "avx2", 32),
        ("haswell", "", "avx2", 8),
        ("haswell", "+avxvnni", "vnni256", 8),
        ("haswell", "-avx", "generic", 4),
        ("nobody-knows-it", "", "generic", 4),
        ("nobody-knows-it", "+sse2,+avx,+avx2,+fma,+f16c", "avx2", 8),
    ],
)
def test_features_decide(cpu, changes, dot, registers):
    machine = describe(resolve_features(cpu, changes), "x86_64")
    assert (machine.dot, machine.registers) == (dot, registers)


@pytest.mark.parametrize(
    ("cpu", "changes", "dot"),
    [
        ("apple-m1", "", "neon"),
        ("nobody-knows-it", "+neon,+dotprod", "neon"),
        ("neoverse-n1", "-dotprod", "generic"),
        ("cortex-a53", "+neon", "generic"),
    ],
)
def test_arm_takes_dot_products_if_it_has_them(cpu, changes, dot):
    machine = describe(resolve_features(cpu, changes), "arm64")
    assert (machine.dot, machine.half, machine.registers) == (dot, True, 8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("cpu", "chosen", "passed", "feature"),
    [
        ("haswell", f"{KERNELS} or {BLOCKS.format('q5_k')}", 20, "avx2"),
        ("skylake-avx512", KERNELS, 18, "avx512bw"),
        ("x86-64-v2", f"{FEW} or {BLOCKS.format('iq4_xs')}", 9, "sse4.2"),
    ],
)
def test_kernels_agree_when_built_for(cpu, chosen, passed, feature):
    if not llvm.get_host_cpu_features().get(feature):
        pytest.skip(f"this processor has no {feature}, and cannot run what is built for {cpu}")
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}
    tests = [str(Path(__file__).with_name(file)) for file in ("test_products.py", "test_block_panels.py")]
    command = [sys.executable, "-m", "pytest", "-x", "-q", *tests, "-k", chosen, "-p", "no:cacheprovider"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"{passed} passed" in done.stdout


@pytest.mark.parametrize(
    ("dot", "cpu", "features", "instruction"),
    [
        ("vnni512", "znver4", "", "vpdpbusd"),
        ("vnni256", "alderlake", "", "vpdpbusd"),
        ("avx2", "haswell", "", "vpmaddubsw"),
        ("neon", "generic", "+dotprod", "sdot"),
        ("generic", "x86-64-v2", "", "pmaddwd"),
    ],
)
def test_each_form_uses_its_instruction(dot, cpu, features, instruction):
    """Also for instructions that this machine lacks and could not run."""
    machine = CpuTarget(features=frozenset(), dot=dot, half=True, registers=8)
    triple = ("aarch64" if dot == "neon" else "x86_64") + "-unknown-linux-gnu"
    for zero in (0, 8, 128):
        assert instruction in _assembly(machine, zero, triple, cpu, features)


def _assembly(machine: CpuTarget, zero: int, triple: str, cpu: str, features: str) -> str:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(I32X, [I32X, I32X, I64]), "dot")
    builder = ir.IRBuilder(function.append_basic_block())
    dot = ByteDot(Emitter(builder, machine), zero)
    sums, weights, x = function.args
    builder.ret(dot.accumulate(sums, weights, dot.operand(x)))
    parsed = llvm.parse_assembly(str(module))
    target = llvm.Target.from_triple(module.triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=3).emit_assembly(parsed)
