"""The benchmark of servers: clients of OpenAI's API, which measure one or several servers in turn."""

from volumetric.bench.serve.client import ClientAnswer, ServerTarget, ask
from volumetric.bench.serve.load_runs import Load, ServeRow, measure_servers, render_serve

__all__ = ["ClientAnswer", "Load", "ServeRow", "ServerTarget", "ask", "measure_servers", "render_serve"]
