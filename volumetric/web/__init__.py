"""Networks as plain data for browsers: WGSL, buffers and lists of dispatches, recorded without a GPU."""

from volumetric.web.export_network import ExportReport, export_network
from volumetric.web.save_web import WebPage, save_web

__all__ = ["ExportReport", "WebPage", "export_network", "save_web"]
