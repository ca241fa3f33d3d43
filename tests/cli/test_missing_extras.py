"""What needs a library of an extra names the extra when the library is missing."""

from __future__ import annotations

import sys

import pytest

from volumetric.builders import sequential
from volumetric.loaders import save_native
from volumetric.network import initialise

CASES = [
    ("pyarrow.parquet", "data", ["train", "parquet.toml"]),
    ("PIL", "data", ["train", "images.toml"]),
    ("sklearn.datasets", "data", ["train", "digits.toml"]),
    ("starlette", "serve", ["serve", "net"]),
    ("uvicorn", "serve", ["serve", "net"]),
    ("matplotlib.figure", "viz", ["dna", "net", "net", "--heatmap", "map.png"]),
    ("gymnasium", "rl", ["evolve", "gym.toml"]),
    ("onnx", "onnx", ["inspect", "net.onnx"]),
    ("onnx", "onnx", ["convert", "net", "other.onnx"]),
]


@pytest.mark.parametrize(("library", "extra", "call"), CASES, ids=[f"{c[0]}-{c[2][0]}" for c in CASES])
def test_a_missing_library_is_named_with_its_extra(run, tmp_path, monkeypatch, library, extra, call):
    network = sequential(2, 1)
    save_native(tmp_path / "net", network, initialise(network))
    for file in ("table.parquet", "net.onnx", "pictures/a/1.png", "pictures/b/1.png"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(bytes(4))
    (tmp_path / "parquet.toml").write_text('[data]\nparquet = "table.parquet"\n')
    (tmp_path / "images.toml").write_text('[data]\nimages = "pictures"\nsize = [8, 8]\n')
    (tmp_path / "digits.toml").write_text('[data]\nproblem = "digits"\n')
    (tmp_path / "gym.toml").write_text('[problem]\nkind = "gym"\nid = "Acrobot-v1"\n')
    package = library.partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)  # another test may have imported parts of it
    monkeypatch.delitem(sys.modules, "volumetric.viz.picture_figure", raising=False)  # it holds a class of matplotlib's
    monkeypatch.setitem(sys.modules, package, None)
    code, _, err = run(*call)
    assert code in (1, 2)
    assert f"volumetric-engine[{extra}]" in err, err
    assert {"pyarrow.parquet": "pyarrow", "PIL": "Pillow", "sklearn.datasets": "scikit-learn"}.get(
        library, library.partition(".")[0]
    ) in err
