"""Where the engine runs: under strict policies, from other hosts, in frames, in a page's worker, without workers."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np

from tests.web.engine_page import EnginePage
from tests.web.handmade_networks import dense_network
from tests.web.static_server import StaticServer, static_server

_SCRIPT = """
const say = text => globalThis.document ? parent.postMessage([place, text], "*") : postMessage([place, text]);
const place = new URL(import.meta.url).searchParams.get("place");
import("{engine}/engine/engine.js").then(async ({{ load }}) => {{
  const m = await load("{net}/net/dense");
  say((await m.run([1, 2, 3, 4])).output.join());
}}).catch(error => say(`${{error.name}}: ${{error.message}}`));
"""
_STRICT = "default-src 'none'; script-src 'self'; worker-src 'self'; connect-src 'self'"
_POLICIES = {
    "strict": _STRICT,
    "trusted-types": f"{_STRICT}; require-trusted-types-for 'script'",
    "no-workers": "default-src 'none'; script-src 'self'; worker-src 'none'; connect-src 'self'",
}
_RUN = """
const heard = {};
const all = new Promise(done => {
  globalThis.onmessage = ({data: [place, text]}) => {
    heard[place] = text;
    if (Object.keys(heard).length === count) done();
  };
});
const frame = (place, attributes) => {
  const one = document.createElement("iframe");
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  document.body.append(one);
};
for (const [place, attributes] of Object.entries(frames)) frame(place, attributes);
new Worker("/net/own.js?place=worker", {type: "module"}).onmessage = globalThis.onmessage;
await all;
return heard;
"""


def _scripts(folder: Path, own: StaticServer, other: StaticServer) -> None:
    """Write a script for each pair of hosts of the engine and the network."""
    hosts = {"own": (own, own), "other-engine": (other, own), "other-network": (own, other)}
    for name, (engine, net) in hosts.items():
        (folder / f"{name}.js").write_text(_SCRIPT.format(engine=engine.url, net=net.url))


def test_places(engine: EnginePage) -> None:
    folder, own = engine.folder, engine.server
    (folder / "dense").mkdir()
    _, weights = dense_network(folder / "dense", np.random.default_rng(10))
    with static_server() as other:
        other.folders = dict(own.folders)
        own.shared = other.shared = True
        _scripts(folder, own, other)

        def script(name: str, place: str) -> str:
            return f'<script type="module" src="{own.url}/net/{name}.js?place={place}"></script>'

        frames = {
            "srcdoc": {"srcdoc": script("own", "srcdoc")},
            "sandbox": {"sandbox": "allow-scripts", "srcdoc": script("own", "sandbox")},
            "engine": {"srcdoc": script("other-engine", "engine")},
            "network": {"srcdoc": script("other-network", "network")},
        }
        for place, policy in _POLICIES.items():
            meta = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
            (folder / f"{place}.html").write_text(f"<!doctype html>{meta}{script('own', place)}")
            frames[place] = {"src": f"/net/{place}.html"}
        heard = engine.run(_RUN, frames=frames, count=len(frames) + 1)
        own.shared = False
    engine.expects_complaints = True  # Chromium reports what the policies refuse
    y = weights[:8].reshape(2, 4) @ np.arange(1, 5, dtype=np.float32) + weights[8:]
    for place in (*frames, "worker"):
        np.testing.assert_allclose(np.fromstring(heard[place], sep=","), y, rtol=1e-5, err_msg=heard[place])
