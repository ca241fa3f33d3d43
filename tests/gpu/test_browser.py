"""Every kernel compiles in a browser too, whose compiler is stricter than wgpu's: uniformity, extensions, constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.browser import find_or_skip, refusals
from tests.gpu.modules import DEVICES, covering, matrix_modules, modules
from volumetric.devices.gpu import shaders
from volumetric.devices.gpu.shaders.dialects import DIALECTS, MATRIX_UNITS
from volumetric.devices.gpu.shaders.wgsl_formulas import FOLDERS


@pytest.mark.thorough
def test_the_modules_use_every_shader_file() -> None:
    root = Path(shaders.__file__).parent
    files = {str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.wgsl")}
    linked_always = {"std", "maths", "reduce_subgroup", "reduce_workgroup"}
    chosen = [module.dispatch for module in covering((*modules(), *matrix_modules()))]
    used = {name for d in chosen for name in (d.kernel, *d.preludes)} - {MATRIX_UNITS}
    used |= {dialect.matrix_units for dialect in DIALECTS.values()}
    written = {name for name in used if name.rpartition("/")[0] in FOLDERS}  # from formulas, not read from files
    assert used - written == files - linked_always
    assert {name.rpartition("/")[0] for name in written} == set(FOLDERS)


@pytest.mark.thorough
def test_every_kernel_fits_the_workgroup_memory_that_it_was_cut_for() -> None:
    chosen = {}
    for module in modules():
        dispatch = module.dispatch
        if dispatch.kernel in ("attend_rows", "attend_split", "attend_append", "matvec", "matrix_gemm", "graph/gemm"):
            # Activations hold no workgroup memory.
            preludes = tuple(name for name in dispatch.preludes if not name.startswith("unary/"))
            chosen[module.device, dispatch.kernel, preludes, tuple(sorted(dispatch.constants.items()))] = module
    assert not any("var<workgroup>" in shaders.read_shader(f"unary/{name}") for name in shaders.available("unary"))
    for module in chosen.values():
        needed, caps = module.link().workgroup_bytes, DEVICES[module.device]
        assert needed <= caps.max_shared, f"{module.device}: {module.dispatch}"


@pytest.mark.thorough
def test_chromium_compiles_every_kernel() -> None:
    find_or_skip()
    texts = {f"{i} {module.dispatch}": module.link("tint").text for i, module in enumerate(covering(modules()))}
    wrong = {
        "unknown extension": "enable subgroups_of_ours;\n",
        "barrier behind a branch": "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) lid: u32) {\n"
        "if (lid == 0u) { workgroupBarrier(); } }\n",
        "constant divided by 0": "const N: u32 = 0u;\n@compute @workgroup_size(1) fn main() { _ = 1u / N; }\n",
    }
    assert refusals(texts | wrong).keys() == wrong.keys()
