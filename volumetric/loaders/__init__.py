"""Model files: resolve, read, convert, write. Only this package imports tokenizers, jinja2, gguf and the hub client.

Names are imported when they are first used; see ``__init__.pyi``.
"""

from __future__ import annotations

import lazy_loader

from volumetric.base.moved_modules import moved_names_getattr

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = moved_names_getattr(__name__, __getattr__)
