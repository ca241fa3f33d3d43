"""The benchmark of servers: clients of OpenAI's API, which measure one or several servers in turn."""

from volumetric.bench.serve.client import Seen, Target, ask
from volumetric.bench.serve.run import Load, ServeRow, measure_servers, render_serve

__all__ = ["Load", "Seen", "ServeRow", "Target", "ask", "measure_servers", "render_serve"]
