# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .machine import WATCHED as WATCHED
from .machine import Clocked as Clocked
from .machine import Hold as Hold
from .machine import ticks as ticks
