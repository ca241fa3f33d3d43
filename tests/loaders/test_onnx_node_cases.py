"""The operator tests that the onnx package brings: a model of one operator, its inputs, and what it must return."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from tests.devices import device
from volumetric.base.errors import CheckpointError, ShapeError, UnsupportedError
from volumetric.loaders.onnx_import.read_onnx import read_model
from volumetric.loaders.onnx_import.run_onnx import OnnxModel

OTHERWISE = {
    "bf16": "computed in float32, where the test rounds each step to bfloat16: one unit in the last place apart",
    "test_dft_inverse": "zeros of the test are sums in float32 here, up to 4e-6",
    "test_resize_downsample_scales_linear_align_corners": "as onnxruntime, which takes the rounded size",
    "test_resize_downsample_scales_cubic_align_corners": "as onnxruntime, which takes the rounded size",
}
"""Part of a name → why our result is another than that of the test."""
LEAST = 0.82
"""Part of the cases that run; the others are refused by name, such as text, sequences and trees."""
ON_DEVICES = (
    "test_add_bcast", "test_argmax_keepdims_example", "test_averagepool_2d_same_upper", "test_basic_conv_with_padding",
    "test_batchnorm_example", "test_cast_FLOAT_to_FLOAT16", "test_clip_example", "test_concat_2d_axis_0",
    "test_convtranspose_pad", "test_cumsum_1d", "test_depthtospace_example", "test_dynamicquantizelinear",
    "test_einsum_batch_matmul", "test_erf", "test_gather_0", "test_gru_seq_length", "test_layer_normalization_2d_axis1",
    "test_lstm_with_peepholes", "test_maxpool_2d_pads", "test_pow_example", "test_qlinearconv",
    "test_reduce_prod_keepdims_example",
    "test_resize_upsample_scales_cubic", "test_round", "test_scatter_elements_with_axis", "test_slice_neg_steps",
    "test_softmax_axis_1", "test_stft", "test_top_k", "test_tile", "test_where_example",
)  # fmt: skip
"""Cases of each family for devices with kernels."""


@cache
def cases() -> dict[str, Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package's own computations
        return {case.name: case for case in load_model_tests(kind="node")}


def array_of(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def difference(case: Any, name: str) -> str:
    """What is wrong with the results of a case, or nothing."""
    model = OnnxModel(read_model(case.model, Path()), device(name))
    for inputs, outputs in case.data_sets:
        results = model.run(dict(zip(model.inputs, map(array_of, inputs), strict=False)))
        for ours, theirs in zip(results.values(), map(array_of, outputs), strict=False):
            if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
                return f"{ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}"
            near = {"rtol": case.rtol, "atol": case.atol, "equal_nan": True}
            if not np.allclose(ours.astype(np.float64), theirs.astype(np.float64), **near):
                return f"{ours} instead of {theirs}"
    return ""


@pytest.mark.thorough
def test_all_cases_run_or_are_refused() -> None:
    wrong, refused = dict[str, str](), list[str]()
    for case in cases().values():
        try:
            if what := difference(case, "reference"):
                wrong[case.name] = what
        except (UnsupportedError, CheckpointError, ShapeError):
            refused.append(case.name)
    unexplained = {name: what for name, what in wrong.items() if not any(part in name for part in OTHERWISE)}
    assert not unexplained
    assert len(refused) <= (1 - LEAST) * len(cases())


@pytest.mark.thorough
@pytest.mark.parametrize("case", ON_DEVICES)
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_cases_run_on_devices(case: str, name: str) -> None:
    assert not difference(cases()[case], name)
