# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .named_devices import list_devices as list_devices
from .named_devices import open_device as open_device
