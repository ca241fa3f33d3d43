"""Dispatch of the package canvas-engineering, https://pypi.org/project/canvas-engineering. Part of `torch_worker`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def build(layers: Any, spec: Mapping[str, Any], width: int, p: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return the function of a step on ``[B, positions, width]``: the first region is written, then all edges act.

    Parameters
    ----------
    layers : the worker's; gets the parameters of the one rule, and `rows` steps that are learned from
    spec : ``side`` of regions, their number, ``heads``, ``edges`` as pairs of the region written and the one read
    p : parameters of the rule by our names, and ``put``, what the first region holds
    """
    torch, side, count = layers.torch, spec["side"], spec["regions"]
    try:
        canvas = importlib.import_module("canvas_engineering")
        dispatch = importlib.import_module("canvas_engineering.dispatch")
    except ImportError as error:
        raise ValueError(str(error)) from None
    boxes = {f"r{n}": (0, 1, side * n, side * (n + 1), 0, side) for n in range(count)}
    layout = canvas.CanvasLayout(T=1, H=side * count, W=side, d_model=width, regions=boxes)
    edges = [canvas.Connection(src=f"r{writes}", dst=f"r{reads}") for writes, reads in spec["edges"]]
    topology = canvas.CanvasTopology(connections=edges)
    step = dispatch.AttentionDispatcher(topology, layout, width, spec["heads"]).to(layers.device)
    own = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    [module] = step.fn_modules.values()
    with torch.no_grad():
        for ours, theirs in own.items():
            for part in ("weight", "bias"):
                getattr(getattr(module, theirs), part).copy_(p[f"{ours}.{part}"])
    layers.replaced.update(step.named_parameters())
    put = p["put"].detach()

    def run(x: Any) -> Any:
        return step(torch.cat([put, x[:, put.shape[1] :]], 1))

    def several(x: Any) -> Any:
        for _ in range(spec["rows"]):
            x = run(x)
        return x

    layers.learned = several
    return run
