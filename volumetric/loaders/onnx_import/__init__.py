"""ONNX: models of others as graphs of this engine. Only this package imports `onnx`."""
