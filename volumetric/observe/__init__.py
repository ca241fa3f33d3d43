"""Observers: statistics of every layer's outputs and gradients, to logs, files, windows and HTTP."""

from volumetric.observe.firing import Firing as Firing
from volumetric.observe.firing import Work as Work
from volumetric.observe.firing import fired as fired
from volumetric.observe.firing import work_of as work_of
from volumetric.observe.inference import ObservedDevice as ObservedDevice
from volumetric.observe.layer_events import LayerEvent as LayerEvent
from volumetric.observe.layer_events import Observer as Observer
from volumetric.observe.layer_events import Stats as Stats
from volumetric.observe.layer_events import Watch as Watch
from volumetric.observe.observers import HttpObserver as HttpObserver
from volumetric.observe.observers import JsonlObserver as JsonlObserver
from volumetric.observe.observers import LogObserver as LogObserver
from volumetric.observe.observers import WindowObserver as WindowObserver
from volumetric.observe.record_rows import record as record
from volumetric.observe.recorder import Recorder as Recorder
from volumetric.observe.recording import Recording as Recording
