"""Steps of the operations of state-space layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.kernels.maths import ACTIVATIONS
from volumetric.devices.cpu.kernels.scans.causal_conv_kernel import COLUMNS_ARGUMENTS, CONV_ARGUMENTS
from volumetric.devices.cpu.kernels.scans.grouped_norm import GROUPED_NORM_ARGUMENTS
from volumetric.devices.cpu.kernels.scans.selective_scan_kernel import (
    EACH_CHANNEL,
    EACH_HEAD,
    MIXED,
    SCAN_ARGUMENTS,
    VALUES,
    scan_scratch,
)
from volumetric.devices.cpu.rows.row_step_builder import RowStepBuilder, rule
from volumetric.graph.operations.state_space import conv_factors
from volumetric.graph.ops import Node


@rule("slice")
def columns(builder: RowStepBuilder, node: Node) -> None:
    """Columns of wider rows."""
    start, stop = node.attrs["starts"][1], node.attrs["stops"][1]
    arguments: dict[str, Any] = {"input": node.inputs[0], "output": node.outputs[0]}
    builder.add_by_rows("columns", COLUMNS_ARGUMENTS, node, **arguments, start=start, width=stop - start)


@rule("grouped_norm")
def grouped_norm(builder: RowStepBuilder, node: Node) -> None:
    """Norms of parts of rows."""
    arguments: dict[str, Any] = {
        "input": node.inputs[0],
        "output": node.outputs[0],
        "width": builder.width(node.inputs[0]),
    }
    arguments |= {"groups": node.attrs["groups"], "eps": float(node.attrs["eps"])}
    arguments |= {"weight": builder.settings.weights.vector(builder.graph.keys_by_role(node)["weight"])}
    builder.add_by_rows("grouped_norm", GROUPED_NORM_ARGUMENTS, node, **arguments)


@rule("causal_conv")
def causal_conv(builder: RowStepBuilder, node: Node) -> None:
    """A convolution of each channel, continued from a state."""
    weights, keys, attrs = builder.settings.weights, builder.graph.keys_by_role(node), node.attrs
    x, y = node.inputs[0], node.outputs[0]
    channels, _, taps = builder.shape(node.inputs[1])

    def by_tap() -> NDArray[np.float32]:
        factored = weights.values(keys["weight"]) * conv_factors(attrs, np.dtype(np.float32))
        return _padded_vectors(factored[:, 0].T).ravel()

    def bias() -> NDArray[np.float32]:
        return _padded_vectors(weights.values(keys["bias"]) if "bias" in keys else np.zeros(channels, np.float32))

    arguments: dict[str, Any] = {"input": x, "start": attrs["start"], "output": y, "channels": channels, "taps": taps}
    arguments |= {"weights": weights.small_array(("taps", keys["weight"], attrs["factors"]), by_tap)}
    arguments |= {"bias": weights.small_array(("bias of taps", keys.get("bias"), channels), bias)}
    arguments |= {
        "state": builder.settings.state_place(builder.graph.states(node)["past"]),
        "note": f"{channels}x{taps}",
    }
    code = ACTIVATIONS.index(attrs["activation"])
    builder.add("causal_conv", CONV_ARGUMENTS, code, reads=(x,), writes=(y,), **arguments)


@rule("selective_scan")
def selective_scan(builder: RowStepBuilder, node: Node) -> None:
    """A scan of all channels, continued from a state."""
    weights, keys, attrs = builder.settings.weights, builder.graph.keys_by_role(node), node.attrs
    heads, width, groups, size = (attrs[name] for name in ("heads", "head_dim", "groups", "size"))
    inputs = dict(zip(attrs["roles"], node.inputs, strict=True))
    values = {name: inputs[name] for name in VALUES if name in inputs}
    each = len(builder.shape(inputs["a_log"])) == 2

    def spread(name: str) -> NDArray[np.float32]:
        if name not in keys:
            return _padded_vectors(np.zeros(heads * width, np.float32))
        numbers = weights.values(keys[name])
        numbers = -np.exp(numbers) if name == "a_log" else numbers
        return _padded_vectors(np.repeat(numbers.T, width, axis=-1)).ravel()

    def vector(name: str) -> int:
        return weights.small_array(("spread", name, keys.get(name), heads, width), lambda: spread(name))

    builder.want_scratch(scan_scratch(size))
    arguments: dict[str, Any] = {"z": -1, **values, "y": node.outputs[0], "heads": heads, "head_dim": width}
    arguments |= {f"{name}_start": attrs["starts"].get(name, 0) for name in VALUES if name != "y"}
    arguments |= {
        "state": builder.settings.state_place(builder.graph.states(node)["state"]),
        "groups": groups,
        "size": size,
    }
    arguments |= {"rate": vector("a_log"), "skip": vector("d"), "bias": vector("dt_bias")}
    arguments |= {name: float(attrs[name]) for name in ("dt_factor", "z_factor", "dt_min")}
    arguments |= {"dt_max": float("inf") if attrs["dt_max"] is None else float(attrs["dt_max"])}
    arguments |= {"note": f"{heads}x{width}x{size}"}
    lanes = EACH_CHANNEL if width == 1 else EACH_HEAD if width % 16 == 0 else MIXED
    constants = (lanes, int(each), int("z" in values))
    reads = tuple(dict.fromkeys(values.values()))
    builder.add("selective_scan", SCAN_ARGUMENTS, *constants, reads=reads, writes=(node.outputs[0],), **arguments)


def _padded_vectors(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows padded with zeros to whole vectors."""
    more = -rows.shape[-1] % 16
    return np.pad(rows, [*[(0, 0)] * (rows.ndim - 1), (0, more)])
