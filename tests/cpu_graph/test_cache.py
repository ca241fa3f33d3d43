"""Compiled kernels are kept under a hash of what they are made of, and of nothing else."""

from __future__ import annotations

from pathlib import Path

from volumetric.kernels.cpu import jit
from volumetric.kernels.cpu.graph import dots, gemm


def test_the_hash_of_a_module_covers_what_it_imports() -> None:
    sources = {path.name for path in jit._sources(Path(dots.__file__))}
    assert {"dots.py", "gemm.py", "tiles.py", "lanes.py", "simd.py", "emit.py", "target.py", "jit.py"} <= sources
    assert not {"attention.py", "reduce.py"} & sources


def test_modules_have_directories_of_their_own() -> None:
    modules = [Path(dots.__file__), Path(gemm.__file__)]
    hashes = {jit.source_hash(), *map(jit.source_hash, modules)}
    assert len(hashes) == 3
