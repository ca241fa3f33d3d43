"""Writes networks as ONNX models: one translation for each operation of the graph, none for a kind of layer.

Only this package and the reader of ONNX files import onnx.
"""
