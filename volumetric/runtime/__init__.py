"""Running networks: plans, devices, states."""

from volumetric.runtime.device import Device as Device
from volumetric.runtime.device import DeviceInfo as DeviceInfo
from volumetric.runtime.device import Executable as Executable
from volumetric.runtime.device import MemoryReport as MemoryReport
from volumetric.runtime.device import Piece as Piece
from volumetric.runtime.device import RunOptions as RunOptions
from volumetric.runtime.device import State as State
from volumetric.runtime.lower import lower as lower
from volumetric.runtime.open import list_devices as list_devices
from volumetric.runtime.open import open_device as open_device
from volumetric.runtime.plan import Plan as Plan
from volumetric.runtime.plan import Step as Step
from volumetric.runtime.plan import Value as Value
