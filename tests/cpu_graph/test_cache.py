"""Compiled kernels are kept under a hash of what they are made of, and of nothing else."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import volumetric
from volumetric.devices.cpu.kernels import attention, jit, panels, row_operations
from volumetric.devices.cpu.kernels.graph import gemm, gemm_nt


def sources(module: ModuleType) -> set[str]:
    home = Path(volumetric.__file__).parent
    return {path.relative_to(home).as_posix() for path in jit._sources(Path(module.__file__ or ""))}


def test_the_hash_of_a_module_covers_what_it_imports() -> None:
    found = sources(gemm_nt)
    own = ("graph/gemm_nt", "graph/gemm", "graph/gemm_microkernels")
    needed = (*own, "masked_load", "simd", "llvm_emitter", "cpu_target", "jit", "inner_kernels")
    assert {f"devices/cpu/kernels/{name}.py" for name in needed} <= found
    assert not {"devices/cpu/kernels/attention.py", "devices/cpu/kernels/graph/reduce.py"} & found


def test_the_hash_covers_constants_of_other_packages() -> None:
    assert {"dtypes/blocks/__init__.py", "dtypes/__init__.py"} <= sources(panels)


def test_an_edit_leaves_kernels_of_other_modules() -> None:
    found = {module.__name__: sources(module) for module in (attention, row_operations, gemm_nt)}
    for module in (attention, row_operations, gemm_nt):
        name = module.__name__.replace("volumetric.", "").replace(".", "/") + ".py"
        assert [other for other, files in found.items() if name in files] == [module.__name__]


def test_modules_have_directories_of_their_own() -> None:
    modules = (gemm_nt, gemm, row_operations)
    directories = {str(jit.cache_directory(Path(module.__file__ or ""))) for module in modules}
    hashes = {jit.source_hash(Path(module.__file__ or "")) for module in modules}
    assert len(directories) == len(hashes) == 3
    assert {Path(each).name for each in directories} == hashes
