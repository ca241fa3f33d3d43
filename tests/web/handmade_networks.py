"""Folders of the format written by hand, for what the reader does with them: kernels of a few lines."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.web.static_server import write_json

_DENSE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    var sum = w[8u + group.x];
    for (var i = 0u; i < 4u; i++) { sum += x[group.y * 4u + i] * w[group.x * 4u + i]; }
    y[group.y * 4u + group.x] = sum;
}
"""
_COUNTER = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> state: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1)
fn main() { state[0] = state[0] * 0.5 + x[0]; y[0] = state[0]; }
"""


def port(buffer: str, shape: list[int], stride: int) -> dict[str, Any]:
    """Return a port of float32."""
    return {"buffer": buffer, "dtype": "float32", "shape": shape, "stride": stride}


def dense_network(folder: Path, rng: np.random.Generator) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Write ``y = x Wᵀ + b`` from 4 to 2; return network.json, and W and b as one array ``[10]``."""
    weights = rng.standard_normal(10).astype(np.float32)
    piece = weights.tobytes() + bytes(512)
    (folder / "weights-000.bin").write_bytes(piece)
    network = {
        "format": "volumetric.web", "version": 1, "kind": "rows", "title": "dense", "origin": {"name": "dense"},
        "pieces": [{"file": "weights-000.bin", "bytes": len(piece), "sha256": hashlib.sha256(piece).hexdigest()}],
        "modules": [_DENSE],
        "variants": [{
            "label": "no subgroups", "needs": {},
            "buffers": [
                {"name": "input", "bytes": 64}, {"name": "output", "bytes": 64},
                {"name": "control", "bytes": 336},
                {"name": "w", "bytes": 48, "parts": [[0, 0, 40]]},
            ],
            "pipelines": [{"label": "dense", "module": 0, "bindings": [[0, "read"], [1, "read"], [2, "read_write"]]}],
            "programs": {"rows 4": [{"dispatches": [[0, [[0, 0], [1, 3], [2, 1]], [2, 4, 1], ["total", 1, 1, 0]]]}]},
        }],
        "inputs": {"input": port("input", [4], 16)}, "outputs": {"output": port("output", [2], 16)}, "states": [],
        "calls": {"programs": [{"program": "rows 4", "rows": 4, "exact": False}], "positions": None,
                  "independent": True, "whole": False,
                  "control": {"buffer": "control", "block": 16, "places": 4, "owners": 4, "singles": True, "line": 1,
                              "pages": []}},
    }  # fmt: skip
    write_json(folder / "network.json", network)
    return network, weights


def ticking_network(folder: Path) -> dict[str, Any]:
    """Write ``s ← s / 2 + x; y = s``, with s = 8 at first; return network.json."""
    first = base64.b64encode(np.array([8], np.float32).tobytes()).decode()
    network = {
        "format": "volumetric.web", "version": 1, "kind": "ticks", "title": "leak", "pieces": [], "modules": [_COUNTER],
        "variants": [{
            "needs": {},
            "buffers": [
                {"name": "x", "bytes": 16}, {"name": "s", "bytes": 16, "data": first}, {"name": "y", "bytes": 16},
            ],
            "pipelines": [
                {"label": "leak", "module": 0, "bindings": [[0, "read"], [1, "read_write"], [2, "read_write"]]},
            ],
            "programs": {"tick": [{"dispatches": [[0, [[0, 0], [1, 1], [2, 2]], [1, 1, 1]]]}]},
        }],
        "inputs": {"x": port("x", [1], 16)}, "outputs": {"y": port("y", [1], 16)}, "states": ["s"],
        "ticks": {"programs": [{"fed": ["x"], "program": "tick"}, {"fed": [], "program": "tick"}]},
    }  # fmt: skip
    write_json(folder / "network.json", network)
    return network
