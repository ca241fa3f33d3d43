"""Runs in a Python that has torch and transformers: makes the models of `odd_configurations`, and computes with them.

    python odd_models_worker.py DIRECTORY IDS.json [FAMILY …]

Writes ``DIRECTORY/0, 1, …``, each with the model as transformers saves it, and ``expected.npy``: the logits after each
of the ids, or the hidden states where the model is an encoder. ``DIRECTORY/made.json`` lists them.
"""

# The libraries are in an interpreter of their own, where no type checker looks:
# pyright: reportMissingImports=false
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from odd_configurations import configurations

ENCODES = {"Model": transformers.AutoModel, "MaskedLM": transformers.AutoModelForMaskedLM}
NOISE = 0.1
"""Deviation of what is added to fresh weights, so that gains are not all 1, nor biases 0, nor attention even."""


def make(home: Path, ids: list[int], family: str, values: dict[str, Any], seed: int) -> None:
    torch.manual_seed(seed)
    values = dict(values)
    kind = (values.pop("architectures", None) or [None])[0]
    kind = "Model" if values.get("use_bidirectional_attention") else kind
    config = transformers.AutoConfig.for_model(family, **values)
    config.torch_dtype = "float32"
    model = ENCODES.get(kind, transformers.AutoModelForCausalLM).from_config(config).eval().float()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor += NOISE * torch.randn_like(tensor)
        given = torch.tensor([ids])
        made = model(given) if kind == "Model" else model.base_model(given) if kind else model(given, use_cache=False)
    rows = made.last_hidden_state if kind else made.logits
    model.save_pretrained(home)
    (home / "generation_config.json").unlink(missing_ok=True)
    np.save(home / "expected.npy", rows[0].float().numpy())


def main() -> None:
    home, ids, *only = sys.argv[1:]
    asked, made = json.loads(Path(ids).read_text()), []
    for number, (family, name, values) in enumerate(configurations()):
        if only and family not in only:
            continue
        record: dict[str, Any] = {"number": number, "family": family, "name": name, "error": None}
        try:
            make(Path(home) / str(number), asked, family, values, number)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"[:200]
        made.append(record)
    (Path(home) / "made.json").write_text(json.dumps(made))


if __name__ == "__main__":
    main()
