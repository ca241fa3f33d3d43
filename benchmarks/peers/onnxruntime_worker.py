"""The ONNX Runtime side of `gpu_peers.py onnx`, under an interpreter that has it and its WebGPU provider.

    python onnxruntime_worker.py PROVIDER

It answers lines of JSON. ``{"open": PATH}`` opens a file, ``{"run": PATH, "inputs": FILE.npz, "runs": N}`` gives the
seconds of N runs and writes the outputs of the last one over ``"outputs"``. Inputs and outputs are host arrays.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

import numpy as np

WEBGPU = "WebGpuExecutionProvider"


def session_of(ort: Any, provider: str, path: str) -> Any:
    """Open a file on a provider, and fail rather than run elsewhere."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if provider != WEBGPU:
        return ort.InferenceSession(path, options, providers=[provider])
    device = next((one for one in ort.get_ep_devices() if one.ep_name == provider), None)
    if device is None:
        raise RuntimeError("no WebGPU device: the Vulkan loader or a driver is missing")
    options.add_provider_for_devices([device], {})
    return ort.InferenceSession(path, options)


def main() -> None:
    provider, sessions = sys.argv[1], {}
    try:
        ort = importlib.import_module("onnxruntime")
        about = f"onnxruntime {ort.__version__}, {provider}"
        if provider == WEBGPU:
            # Without /sys/class/drm, as in containers, it lists no GPU, and yet it takes the one that Vulkan has.
            os.environ.setdefault("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
            ort.set_default_logger_severity(3)
            plugin = importlib.import_module("onnxruntime_ep_webgpu")
            ort.register_execution_provider_library("webgpu", plugin.get_library_path())
            about += f" of {plugin.__name__} {version('onnxruntime-ep-webgpu')}"
        print(json.dumps({"about": about}), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            if "open" in request:
                sessions[request["open"]] = session_of(ort, provider, request["open"])
                print(json.dumps({"opened": request["open"]}), flush=True)
                continue
            with np.load(request["inputs"]) as file:
                inputs = {name: file[name] for name in file.files}
            session, outputs, start = sessions[request["run"]], [], time.perf_counter()
            for _ in range(request["runs"]):
                outputs = session.run(None, inputs)
            seconds = time.perf_counter() - start
            if request.get("outputs"):
                np.save(request["outputs"], outputs[0])
            print(json.dumps({"seconds": seconds}), flush=True)
    except Exception as error:  # whatever the library raises: the caller says it
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


def version(package: str) -> str:
    """Return the version of an installed package."""
    metadata: Any = importlib.import_module("importlib.metadata")
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


if __name__ == "__main__":
    main()
