"""Running networks: plans, devices, states."""

from typing import TYPE_CHECKING

from volumetric.base.moved_modules import moved_names_getattr
from volumetric.run.device import Device as Device
from volumetric.run.device import DeviceInfo as DeviceInfo
from volumetric.run.device import Executable as Executable
from volumetric.run.device import MemoryReport as MemoryReport
from volumetric.run.device import RunOptions as RunOptions
from volumetric.run.device import SequenceRows as SequenceRows
from volumetric.run.device import State as State
from volumetric.run.lower import lower as lower
from volumetric.run.plan import Plan as Plan
from volumetric.run.plan import Step as Step
from volumetric.run.plan import Value as Value

if not TYPE_CHECKING:  # to type checkers a former name is unknown
    __getattr__ = moved_names_getattr(__name__)
