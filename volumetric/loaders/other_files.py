"""Files that are no model here: what they are by their ending, and how to make one of them that can be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from volumetric.errors import CheckpointError

PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Endings of files that Python's pickle has written, torch's among them."""
_OTHERS: Final = {
    ".onnx": "an ONNX graph: onnx.numpy_helper reads its weights, and safetensors.numpy.save_file writes them",
    ".h5": "Keras' weights in HDF5: model.get_weights() reads them, and safetensors.numpy.save_file writes them",
    ".keras": "a Keras model: model.get_weights() reads its weights, and safetensors.numpy.save_file writes them",
    ".msgpack": "Flax' weights: flax.serialization reads them, and safetensors.flax.save_file writes them",
    ".npy": 'one array without a name: np.savez("weights.npz", **{"fc.weight": array, …}) writes arrays with theirs',
    ".tflite": "a TensorFlow Lite model, whose weights its own tools read",
    ".mlmodel": "a Core ML model, whose weights its own tools read",
    ".toml": "settings: volumetric train, or evolve, reads them",
    ".py": "Python code, which is not run here: save the model's weights with safetensors.torch.save_file",
}


def no_model(path: Path) -> CheckpointError:
    """Return the error for a file that is opened as a model and is none."""
    if path.suffix.lower() in PICKLES:
        return CheckpointError(
            f"{path} is a pickle, which can run code when it is opened, and is never read",
            hint="where you trust it: state = torch.load(path, weights_only=True), then "
            "safetensors.torch.save_file(state, 'model.safetensors'); or look for a .safetensors or .gguf of the model",
        )
    known = _OTHERS.get(path.suffix.lower())
    if known is not None:
        return CheckpointError(f"{path} is no model file", hint=f"it is {known}")
    return CheckpointError(
        f"{path} is no model file", hint="give a .gguf, .safetensors, .npz or .json file, or a directory"
    )
