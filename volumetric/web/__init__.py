"""Networks as plain data for browsers: WGSL, buffers and lists of dispatches, recorded without a GPU."""

from volumetric.web.export_network import ExportReport, export_network

__all__ = ["ExportReport", "export_network"]
