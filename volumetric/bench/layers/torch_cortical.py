"""Cells of the package `cortical`, https://pypi.org/project/cortical/. Part of `torch_worker`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

_CONFIGS = {
    "lstm": "LSTMCellConfig",
    "causal_conv1d": "CausalConv1dConfig",
    "slstm": "sLSTMCellConfig",
    "mlstm": "mLSTMCellConfig",
    "xl_attention": "XLCellConfig",
    "agalite": "AGaLiTeCellConfig",
    "axon": "AxonConfig",
}


def build(layers: Any, spec: Mapping[str, Any], width: int) -> Callable[[Any], Any]:
    """Return the function of a cell on ``[B, T, width]``; `layers` is the worker's and gets its parameters and runs."""
    # Or it compiles loops of all steps, which takes minutes.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    try:
        cells, configs = (importlib.import_module(f"cortex.{name}") for name in ("cells", "config"))
    except ImportError as error:
        raise ValueError(str(error)) from None
    torch = layers.torch
    torch.manual_seed(0)
    cell: Callable[..., Any]
    if spec["cell"] == "axon_linear":
        layer = cells.AxonLayer(width, width).to(layers.device)
        tensordict = importlib.import_module("tensordict").TensorDict

        def fresh(batch: int) -> Any:
            return tensordict({}, batch_size=[batch])

        def run_layer(x: Any, state: Any, resets: Any = None) -> Any:
            return layer(x, state, resets=resets), state

        cell = run_layer
        layers.replaced.update(layer.named_parameters())
    else:
        made = cells.build_cell(getattr(configs, _CONFIGS[spec["cell"]])(hidden_size=width)).to(layers.device)
        layers.replaced.update(made.named_parameters())
        cell = made

        def fresh(batch: int) -> Any:
            return made.init_state(batch=batch, device=layers.device, dtype=torch.float32)

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
