"""Maps modules to the operations that they declare, so that unused modules are not imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DECLARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cell": "cell cell_grad",
        "cross_attention": "cross_attend",
        "depthwise": "depthwise_conv depthwise_conv_grad",
        "distance_attention": "distance_attend",
        "edge_attention": "edge_attend edge_attend_grad",
        "elementwise": "unary unary_grad binary",
        "experts": "experts",
        "images": "unfold fold",
        "linear_scan": "linear_scan",
        "data_movement": "reshape permute slice flip delay last pad concat broadcast reduce assign",
        "noise": "gumbel normal dropout",
        "norms": "norm norm_grad norm_param_grad",
        "pools": "pool_max pool_max_grad pool_sum pool_spread",
        "products": "gemm",
        "rotate_scan": "rotate_scan",
        "rows": "gather_rows scatter_rows softmax softmax_grad entmax entmax_grad keep_largest",
        "rowwise": "gated linear lookup attend mix",
        "scan": "scan",
        "sequences": "rope recurrent recurrent_grad recurrence",
        "state_space": "causal_conv selective_scan grouped_norm",
        "training": "loss update sumsq fake_quant",
        "weighted_rows": "weigh_rows",
    }
)
"""Module → operations that it declares."""
