"""Write a network as an ONNX file.

Layers emit the operations of the graph; each operation is written as nodes of ONNX. No layer is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from volumetric.base.atomic import atomic_file
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_export.onnx_model import OnnxReport, onnx_model
from volumetric.network import Network
from volumetric.network.weight_store import WeightStore

if TYPE_CHECKING:
    from onnx import TensorProto

    from volumetric.analysis.standardise import Standardisation

_LARGEST: Final = (1 << 31) - (1 << 24)
"""Bytes of a protobuf message, less a margin for the nodes."""
_FEW, _PAGE = 1024, 4096
"""Bytes of a tensor that stays in the file of nodes, and between the starts of tensors in the file of weights."""


@explain_call_errors
def save_onnx(
    path: str | Path,
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    rows: int | None = None,
    inputs: Standardisation | None = None,
    classes: Sequence[str] = (),
    external: bool | None = None,
) -> OnnxReport:
    """Write a network as an ONNX model, opset 21, for onnxruntime and other runtimes.

    Inputs and outputs have the names of the network's. Their first axis are the rows: samples, or the rows of one
    sequence from its start, if layers read other rows. Weights in int8, int4, uint8, … with scales by row or by group
    keep their codes, and a DequantizeLinear computes their values; float16, bfloat16 and float8 keep their bits. Other
    types are written as float32.

    Parameters
    ----------
    path : file, ending in ``.onnx``
    rows : number of rows that the model takes; None: any number
    inputs : standardisation of inputs, written before the first layer
    classes : names of the output classes, in the metadata of the model
    external : whether the weights are in a second file, ``PATH.data``; None: if they take more than an ONNX file can
        hold, 2 GB

    Returns
    -------
    OnnxReport

    Raises
    ------
    UnsupportedError
        ONNX cannot express a layer, or not for any number of `rows`; the message names it. Or the onnx package is
        missing.
    CheckpointError
        The file cannot be written.
    """
    target = Path(path)
    if target.suffix != ".onnx":
        raise UnsupportedError(f"{target}: the name of an ONNX file must end in .onnx", hint=f"name it {target}.onnx")
    model, report = onnx_model(network, params, rows=rows, inputs=inputs, classes=classes)
    tensors = model.graph.initializer
    if external or (external is None and sum(len(tensor.raw_data) for tensor in tensors) > _LARGEST):
        with atomic_file(f"{target}.data") as handle:
            for tensor in tensors:
                _move_to_file(tensor, handle, f"{target.name}.data")
    with atomic_file(target) as handle:
        handle.write(model.SerializeToString())
    return report


def _move_to_file(tensor: TensorProto, handle: BinaryIO, location: str) -> None:
    """Append the values of a tensor to the file of weights, at a page of its own, unless they are few."""
    from onnx import TensorProto
    from onnx.external_data_helper import set_external_data

    size = len(tensor.raw_data)
    if size < _FEW:
        return
    handle.write(b"\0" * (-handle.tell() % _PAGE))
    set_external_data(tensor, location, handle.tell(), size)
    handle.write(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
