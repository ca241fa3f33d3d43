"""Cells and scaffolds of the package `cortical`, https://pypi.org/project/cortical/. Part of `torch_worker`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

_CONFIGS = {
    "lstm": "LSTMCellConfig",
    "causal_conv1d": "CausalConv1dConfig",
    "slstm": "sLSTMCellConfig",
    "mlstm": "mLSTMCellConfig",
    "xl_attention": "XLCellConfig",
    "agalite": "AGaLiTeCellConfig",
    "axon": "AxonConfig",
}
_BLOCKS = {
    "pre_up": "PreUpBlockConfig",
    "pre_up_gated": "PreUpGatedBlockConfig",
    "post_up": "PostUpBlockConfig",
    "post_up_gated": "PostUpGatedBlockConfig",
}

Called: TypeAlias = tuple[Callable[..., Any], Callable[[int], Any]]
"""A layer of rows and a state, and what makes a fresh state of so many sequences."""


def build(layers: Any, spec: Mapping[str, Any], width: int, p: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function of a cell, a scaffold or a column on ``[B, T, width]``.

    `layers` is the worker's, and gets the parameters and the other runs; they are the package's own, not `p`.
    """
    # Or it compiles loops of all steps, which takes minutes.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    torch = layers.torch
    torch.manual_seed(0)
    try:
        cell, fresh = _layer(layers, width) if spec["cell"] == "axon_linear" else _made(layers, spec["cell"], width)
    except ImportError as error:
        raise ValueError(str(error)) from None
    resets = torch.tensor(spec["resets"], dtype=torch.bool, device=layers.device)

    def run(x: Any) -> Any:
        return cell(x, fresh(len(x)))[0]

    def with_resets(x: Any) -> Any:
        return cell(x, fresh(len(x)), resets=resets)[0]

    state = fresh(1)
    row = torch.randn(1, width, device=layers.device)

    def decode() -> Any:
        nonlocal state
        with torch.no_grad():
            y, state = cell(row, state)
        return y

    layers.with_resets, layers.decode = with_resets, decode
    return run


def _made(layers: Any, kind: str, width: int) -> Called:
    """Return a cell; or a scaffold or column as a stack of it alone, without a norm behind."""
    configs = importlib.import_module("cortex.config")
    if kind in _CONFIGS:
        cells = importlib.import_module("cortex.cells")
        made = cells.build_cell(getattr(configs, _CONFIGS[kind])(hidden_size=width))
    else:
        factory = importlib.import_module("cortex.factory")
        whole = {"d_hidden": width, "post_norm": False, "compile_blocks": False}
        made = factory.build_cortex(configs.CortexStackConfig(blocks=[_block(configs, kind, width)], **whole))
    made = made.to(layers.device)
    layers.replaced.update(made.named_parameters())
    return made, lambda batch: made.init_state(batch=batch, device=layers.device, dtype=layers.torch.float32)


def _block(configs: Any, kind: str, width: int) -> Any:
    """Return what a scaffold is made of, around a causal convolution; columns have their usual experts."""
    if kind == "column":
        column = importlib.import_module("cortex.blocks.column.auto")
        return column.build_column_auto_config(d_hidden=width, pattern="AXMS")
    core = configs.CausalConv1dConfig()
    if kind == "adapter":
        return configs.AdapterBlockConfig(base_block=configs.PassThroughBlockConfig(cell=core))
    return getattr(configs, _BLOCKS[kind])(cell=core)


def _layer(layers: Any, width: int) -> Called:
    """Return the projection that remembers, which is no cell."""
    cells = importlib.import_module("cortex.cells")
    layer = cells.AxonLayer(width, width).to(layers.device)
    tensordict = importlib.import_module("tensordict").TensorDict
    layers.replaced.update(layer.named_parameters())

    def run(x: Any, state: Any, resets: Any = None) -> Any:
        return layer(x, state, resets=resets), state

    return run, lambda batch: tensordict({}, batch_size=[batch])
