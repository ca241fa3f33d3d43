"""Pages of the scope in a browser: they show their views, load nothing, and make no script of a name."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.scope.pages import open_page, show
from volumetric import initialise
from volumetric.base.errors import SpecError
from volumetric.builders import sequential
from volumetric.observe import record
from volumetric.scope import ScopeDocument, ScopeView, Viewer
from volumetric.scope.document import encode_document, encode_message
from volumetric.scope.page import page_modules, scope_page
from volumetric.scope.scene_tables import scene_view


def recorded():
    network = sequential(4, 2, hidden=(16, 16))
    x = np.random.default_rng(0).standard_normal((1, 30, 4)).astype(np.float32)
    return record(network, x, params=initialise(network), device="reference")


def document(title: str = "a network") -> ScopeDocument:
    recording = recorded()
    return ScopeDocument(title=title, source="here", views=(scene_view(recording.scene, [recording]),))


def test_a_recording_is_shown_in_space(browser, tmp_path):
    page = show(browser, document("</script><script>alert(1)</script>"), tmp_path)
    assert page.value("document.querySelector('h1').textContent") == "</script><script>alert(1)</script>"
    assert page.value("document.querySelectorAll('canvas').length") >= 1
    others = "performance.getEntriesByType('resource').filter(entry => !entry.name.startsWith('blob:')).length"
    assert page.value(others) == 0


def test_messages_reach_a_page_and_actions_are_answered(browser):
    class Source:
        def connect(self, send):
            self.send = send

        def act(self, view, action):
            if action.get("do") == "fail":
                raise SpecError("no such thing")
            return {"view": view, "twice": 2 * action["number"]}

        def close(self):
            pass

    source = Source()
    server = Viewer(document(), source).serve()
    try:
        open_page(browser, server.address)
        assert browser.value("scope.live.act('network', {number: 4})") == {"view": "network", "twice": 8}
        browser.value("(scope.live.on('network', message => { window.heard = message.values; }), 0)")
        assert server.wait_for_viewers(10)
        source.send({"view": "network", "values": [1, float("nan")]})
        browser.wait("window.heard !== undefined")
        lines = [{"kind": "lines", "series": [{"name": "a", "x": [0, 1], "y": [1, 2], "colour": "#336699"}]}]
        asked = json.dumps({"do": "figure", "volumetric.figure": 1, "title": "", "figures": lines})
        begins = f"scope.live.act('scope', {asked}).then(answer => atob(answer.pdf).slice(0, 5))"
        assert browser.value(begins) == "%PDF-"
        assert browser.value("window.heard") == [1, "nan"]
        browser.forget_complaints()
        assert browser.value("scope.live.act('network', {do: 'fail'}).catch(error => error.message)") == "no such thing"
        browser.open("about:blank")
        browser.forget_complaints()  # the browser reports the status 400 itself
    finally:
        server.close()


def test_documents_hold_arrays_and_refuse_what_pages_cannot():
    view = ScopeView(kind="scene", name="a", label="A", data={"x": np.arange(3), "y": [np.float32(1.5), float("inf")]})
    encoded = encode_document(ScopeDocument(title="t", source="s", views=(view,)))
    assert '"x":{"$array":0,"dtype":"int32","shape":[3]},"y":[1.5,"inf"]' in encoded.json
    assert '"$base64":"AQ=="' in encode_message({"x": np.ones(1, bool)})
    with pytest.raises(SpecError, match=r"a\.x: numbers beyond int32"):
        encode_document(
            ScopeDocument(
                title="",
                source="",
                views=(ScopeView(kind="scene", name="a", label="", data={"x": np.array([1 << 40])}),),
            )
        )
    with pytest.raises(SpecError, match="cannot hold a set"):
        encode_document(
            ScopeDocument(title="", source="", views=(ScopeView(kind="scene", name="a", label="", data={"x": set()}),))
        )
    with pytest.raises(SpecError, match="different names"):
        ScopeDocument(title="", source="", views=())
    with pytest.raises(SpecError, match="no view of the kind"):
        scope_page(ScopeDocument(title="", source="", views=(ScopeView(kind="../main", name="a", label="", data={}),)))


def test_scripts_come_after_those_that_they_import():
    names = list(page_modules(["scene"]))
    assert names[-1] == "main.js"
    assert names.index("scene/renderer.js") < names.index("views/scene.js")
    page = scope_page(ScopeDocument(title="", source="", views=(ScopeView(kind="scene", name="a", label="", data={}),)))
    texts = page.split('data-module="')[1:]
    assert [text.partition('"')[0] for text in texts] == names
    assert all('from "./' not in text and 'from "../' not in text for text in texts if not text.startswith("vendor/"))
