"""Small networks as source code that needs nothing else: plain Python, or C.

`save_python` and `save_c` write one file from a network and its weights; docs/export_code.md has the details.
"""

from __future__ import annotations

from volumetric.codegen.save_source import MAX_WEIGHTS, save_c, save_python

__all__ = ["MAX_WEIGHTS", "save_c", "save_python"]
