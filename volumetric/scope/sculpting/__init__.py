"""Streams that are changed while they run, from Python or from a page, with undo and replay."""

from volumetric.scope.sculpting.replay_acts import replay as replay
from volumetric.scope.sculpting.sculpt_viewer import sculpt_viewer as sculpt_viewer
from volumetric.scope.sculpting.sculpt_viewer import sculpting_view as sculpting_view
from volumetric.scope.sculpting.sculpted_stream import SculptedStream as SculptedStream
