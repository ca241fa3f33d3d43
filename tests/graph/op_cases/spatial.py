"""Windows of images and pools."""

from __future__ import annotations

import numpy as np

from tests.graph.op_cases.case import OpCase, case_outputs, normal


def _window(
    n: int, c: int, sizes: tuple[int, ...], counts: tuple[int, ...], **fields: tuple[int, ...]
) -> dict[str, OpCase]:
    attrs = {
        "stride": (1,) * len(sizes),
        "dilation": (1,) * len(sizes),
        "before": (0,) * len(sizes),
        **fields,
        "counts": counts,
    }
    deep, windows = c * int(np.prod(attrs["kernel"])), int(np.prod(counts))
    return {
        "unfold": OpCase(op="unfold", inputs=(normal(n, c, *sizes),), attrs=attrs),
        "fold": OpCase(op="fold", inputs=(normal(n, deep, windows),), attrs={**attrs, "sizes": sizes}),
    }


IMAGES_CASES = {
    f"{way}-{name}": case
    for name, cases in {
        "1d": _window(2, 3, (7,), (5,), kernel=(3,)),
        "1d-same": _window(1, 2, (9,), (9,), kernel=(4,), dilation=(2,), before=(3,)),
        "2d": _window(3, 2, (5, 7), (5, 7), kernel=(3, 3), before=(1, 1)),
        "2d-everything": _window(2, 3, (5, 7), (2, 3), kernel=(3, 2), stride=(2, 3), before=(1, 2), dilation=(1, 2)),
        "2d-fewer": _window(1, 2, (6, 6), (2, 2), kernel=(2, 2), stride=(2, 2)),
        "2d-one": _window(17, 1, (1, 1), (1, 1), kernel=(1, 1)),
        "3d": _window(1, 2, (3, 3, 3), (2, 2, 3), kernel=(2, 1, 3), stride=(1, 2, 1), before=(0, 1, 1)),
        "none": _window(0, 2, (4, 4), (3, 3), kernel=(2, 2)),
    }.items()
    for way, case in cases.items()
}


def _pools(
    n: int, c: int, sizes: tuple[int, ...], counts: tuple[int, ...], **fields: tuple[int, ...]
) -> dict[str, OpCase]:
    x, attrs = normal(n, c, *sizes), _window(n, c, sizes, counts, **fields)["unfold"].attrs
    whole = {**attrs, "sizes": sizes}
    top = OpCase(op="pool_max", inputs=(x,), attrs=attrs)
    taps = case_outputs(top)[1]
    return {
        "pool-max": top,
        "pool-max-grad": OpCase(op="pool_max_grad", inputs=(normal(n, c, *counts), taps), attrs=whole),
        "pool-sum": OpCase(op="pool_sum", inputs=(x,), attrs=attrs),
        "pool-spread": OpCase(op="pool_spread", inputs=(normal(n, c, *counts),), attrs=whole),
    }


POOLS_CASES = {
    **{
        f"{way}-{name}": case
        for name, cases in {
            "1d": _pools(2, 3, (7,), (3,), kernel=(2,), stride=(2,)),
            "1d-partial": _pools(1, 2, (8,), (4,), kernel=(3,), stride=(2,)),
            "2d": _pools(3, 5, (17, 13), (9, 7), kernel=(3, 3), stride=(2, 2), before=(1, 1)),
            "2d-overlapping": _pools(2, 1, (6, 5), (5, 3), kernel=(2, 3)),
            "2d-everything": _pools(1, 3, (7, 9), (3, 3), kernel=(3, 2), stride=(2, 3), before=(1, 1), dilation=(1, 2)),
            "2d-gaps": _pools(1, 2, (9, 9), (2, 3), kernel=(2, 1), stride=(5, 4)),
            "2d-none": _pools(0, 2, (4, 4), (2, 2), kernel=(2, 2), stride=(2, 2)),
            "3d": _pools(1, 2, (5, 4, 7), (2, 2, 4), kernel=(2, 3, 1), stride=(2, 1, 2)),
            "one": _pools(1, 1, (1, 1), (1, 1), kernel=(1, 1)),
            "1d-long": _pools(3, 1, (71,), (35,), kernel=(2,), stride=(2,)),
            "1d-whole": _pools(3, 1, (1, 111, 1), (1, 2, 1), kernel=(1, 52, 1), stride=(1, 59, 1)),
            "1d-holes": _pools(1, 2, (37,), (33,), kernel=(3,), dilation=(4,), before=(2,)),
            "2d-long": _pools(1, 3, (5, 67), (3, 34), kernel=(3, 3), stride=(2, 2), before=(1, 1)),
        }.items()
        for way, case in cases.items()
    },
    "pool-max-odd": OpCase(
        op="pool_max",
        inputs=(
            np.array([[[np.nan, 1, np.nan, 2, np.inf, np.nan, -np.inf, -np.inf, 3, 3, 3, 2, 0.0, -0.0]]], np.float32),
        ),
        attrs={"kernel": (3,), "stride": (1,), "dilation": (1,), "before": (1,), "counts": (14,)},
    ),
    "pool-max-odd-many": OpCase(
        op="pool_max",
        inputs=(
            np.stack(
                [
                    np.where(np.arange(70) % 33 == 20, np.nan, 1.0),
                    np.where(np.arange(70) % 17 == 9, 3.0, 2.0),
                    np.full(70, -np.inf),
                    np.where(np.arange(70) == 69, np.inf, np.linspace(1, 2, 70)),
                ]
            )[None].astype(np.float32),
        ),
        attrs={"kernel": (70,), "stride": (70,), "dilation": (1,), "before": (0,), "counts": (1,)},
    ),
    "pool-max-odd-pairs": OpCase(
        op="pool_max",
        inputs=(
            np.tile(np.array([np.nan, 1, 2, np.nan, np.nan, np.nan, -np.inf, -np.inf, 3, 3], np.float32), (1, 1, 4)),
        ),
        attrs={"kernel": (2,), "stride": (2,), "dilation": (1,), "before": (0,), "counts": (20,)},
    ),
}
