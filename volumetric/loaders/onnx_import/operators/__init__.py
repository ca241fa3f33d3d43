"""Operators of ONNX by family. Each function emits one operator; `operator_table` finds them by name."""
