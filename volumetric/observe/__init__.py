"""Observers: statistics of every layer's outputs and gradients, to logs, files, windows and HTTP."""

from volumetric.observe.activity import Recorder as Recorder
from volumetric.observe.activity import record as record
from volumetric.observe.events import LayerEvent as LayerEvent
from volumetric.observe.events import Observer as Observer
from volumetric.observe.events import Stats as Stats
from volumetric.observe.events import Watch as Watch
from volumetric.observe.firing import Firing as Firing
from volumetric.observe.firing import Work as Work
from volumetric.observe.firing import fired as fired
from volumetric.observe.firing import work_of as work_of
from volumetric.observe.inference import ObservedDevice as ObservedDevice
from volumetric.observe.live import ActivityServer as ActivityServer
from volumetric.observe.recording import Recording as Recording
from volumetric.observe.records import HttpObserver as HttpObserver
from volumetric.observe.records import JsonlObserver as JsonlObserver
from volumetric.observe.records import LogObserver as LogObserver
from volumetric.observe.records import WindowObserver as WindowObserver
