"""Operations on rows: softmaxes, the largest of a row, and norms."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graph.op_cases.case import OpCase, ids, normal, with_odd_rows
from tests.graph.op_cases.elements import move


def _on_rows(op: str, shape: tuple[int, int], **attrs: Any) -> dict[str, OpCase]:
    """The operation on plain rows, on odd ones, on none."""
    x = normal(*shape)
    return {
        "plain": OpCase(op=op, inputs=(x,), attrs=attrs),
        "odd": OpCase(op=op, inputs=(with_odd_rows(normal(5, shape[1])),), attrs=attrs),
        "large": OpCase(op=op, inputs=(x * 50 + 1000,), attrs=attrs),
        "none": OpCase(op=op, inputs=(normal(0, shape[1]),), attrs=attrs),
    }


def share(rows: int, width: int, zeros: bool = False) -> np.ndarray:
    """Rows of probabilities."""
    y = np.exp(normal(rows, width))
    y = np.where(normal(rows, width) > 0.3, 0, y) if zeros else y
    y[:, 0] += 0.1
    return (y / y.sum(-1, keepdims=True)).astype(np.float32)


ROWS_CASES = {
    "gather": OpCase(op="gather_rows", inputs=(normal(7, 5), ids(11, 7))),
    "gather-none": OpCase(op="gather_rows", inputs=(normal(7, 5), ids(0, 7))),
    "scatter": OpCase(op="scatter_rows", inputs=(normal(33, 5), ids(33, 7)), attrs={"rows": 9}),
    "scatter-many": OpCase(op="scatter_rows", inputs=(normal(2050, 3), ids(2050, 300)), attrs={"rows": 301}),
    "scatter-alike": OpCase(op="scatter_rows", inputs=(normal(301, 513), ids(301, 2)), attrs={"rows": 3}),
    "scatter-merged": OpCase(op="scatter_rows", inputs=(normal(4200, 1), ids(4200, 40)), attrs={"rows": 41}),
    "scatter-none": OpCase(op="scatter_rows", inputs=(normal(0, 5), ids(0, 7)), attrs={"rows": 3}),
    **{f"softmax-{k}": v for k, v in _on_rows("softmax", (17, 33)).items()},
    "softmax-long": move("softmax", (3, 1031)),
    "softmax-one": move("softmax", (3, 1)),
    "softmax-grad": OpCase(op="softmax_grad", inputs=(share(17, 33), normal(17, 33))),
    "softmax-grad-long": OpCase(op="softmax_grad", inputs=(share(2, 1031), normal(2, 1031))),
    **{f"entmax-{k}": v for k, v in _on_rows("entmax", (7, 13), alpha=1.5).items()},
    **{f"entmax-soft-{k}": v for k, v in _on_rows("entmax", (7, 5), alpha=1.1).items()},
    **{f"sparsemax-{k}": v for k, v in _on_rows("entmax", (17, 33), alpha=2.0).items()},
    "sparsemax-equal": OpCase(op="entmax", inputs=(np.ones((2, 5), np.float32),), attrs={"alpha": 2.0}),
    "sparsemax-long": move("entmax", (2, 301), alpha=2.0),
    **{
        f"entmax-grad-{alpha}": OpCase(
            op="entmax_grad", inputs=(share(7, 13, zeros=True), normal(7, 13)), attrs={"alpha": alpha}
        )
        for alpha in (1.1, 1.5, 2.0)
    },
    "entmax-grad-zeros": OpCase(
        op="entmax_grad", inputs=(np.zeros((2, 3), np.float32), normal(2, 3)), attrs={"alpha": 1.5}
    ),
    **{f"keep-{k}": v for k, v in _on_rows("keep_largest", (17, 7), k=2).items()},
    "keep-equal": OpCase(
        op="keep_largest", inputs=(np.array([[1, 2, 2, 2], [0, 0, 0, 0]], np.float32),), attrs={"k": 2}
    ),
    "keep-all": move("keep_largest", (3, 4), k=4),
    "keep-nan": OpCase(
        op="keep_largest",
        inputs=(np.array([[np.nan, 1, 2, 3], [-np.inf, np.nan, -np.inf, 0]], np.float32),),
        attrs={"k": 2},
    ),
}


def _norms(rows: int, width: int) -> dict[str, OpCase]:
    cases: dict[str, OpCase] = {}
    x, g, gain, bias = normal(rows, width), normal(rows, width), normal(width), normal(width)
    if width == 1:  # its root mean square is its size: the gradient is what rounding leaves, less of large numbers
        x = x + np.sign(x)
    # A row of one element less its mean is 0: let nothing of that be rounded.
    even = np.round(x * 256) / np.float32(256) if width == 1 else x
    for kind, offset, inputs in (
        ("rms", False, (x,)),
        ("rms", True, (x, gain)),
        ("rms", False, (x, gain, bias)),
        ("layer", False, (even,)),
        ("layer", False, (even, gain)),
        ("layer", True, (even, gain, bias)),
    ):
        x = inputs[0]
        name = f"{kind}-{len(inputs)}-{rows}x{width}"
        attrs = {"kind": kind, "unit_offset": offset}
        cases[name] = OpCase(op="norm", inputs=inputs, attrs={**attrs, "eps": 1e-5})
        mean = x.mean(-1, keepdims=True) if kind == "layer" else 0 * x[:, :1]
        rstd = 1 / np.sqrt(np.square(x - mean).mean(-1, keepdims=True) + np.float32(1e-5))
        shift = np.full_like(mean, 0.25 * (kind == "layer"))  # stands for what rounding takes from a mean
        stats = np.concatenate([mean - shift, rstd, shift], -1)
        cases[f"grad-{name}"] = OpCase(op="norm_grad", inputs=(g, x, stats, *inputs[1:2]), attrs=attrs)
        both = {"bias": len(inputs) == 3}
        cases[f"param-{name}"] = OpCase(op="norm_param_grad", inputs=(g, x, stats), attrs=both)
    return cases


NORMS_CASES = {
    **_norms(5, 7),
    **_norms(33, 65),
    **_norms(1, 1),
    **_norms(0, 3),
    "layer-far": OpCase(
        op="norm",
        inputs=(normal(9, 67) + np.float32(1e4),),  # a mean of float32 alone is off by 5e-4 here
        attrs={"kind": "layer", "unit_offset": False, "eps": 1e-5},
    ),
}
