"""Mistakes in Python: loading, generating, predicting, saving."""

from __future__ import annotations

from tests.project.mistakes.mistake import in_python

MISTAKES = (
    in_python("load of a missing file", 'load("mdel")', "'mdel' | no file or directory | 'model'"),
    in_python("load of a table", 'load("points.csv")', "points.csv | not a model file | volumetric train"),
    in_python("load of a PyTorch file", 'load("weights.pt")', "weights.pt | pickle | safetensors"),
    in_python("load of a missing option", 'load("letters", device="reference", ctx=9)', "load | 'ctx' | 'context'"),
    in_python("load of a type of nobody", 'load("letters", device="reference", dtype="int5")', "dtype | 'int5' | int8"),
    in_python(
        "load: context too large",
        'load("letters", device="reference", context=-5)',
        "context | got -5 | leave context out",
    ),
    in_python(
        "generate: empty prompt",
        'load("letters", device="reference").generate("")',
        "the prompt | is empty | pass some text",
    ),
    in_python(
        "generate: max_length of transformers",
        'load("letters", device="reference").generate("abc", max_length=5)',
        "sampling parameter | 'max_length' | 'max_tokens'",
    ),
    in_python(
        "generate: max_new_tokens",
        'load("letters", device="reference").generate("abc", temprature=0.5)',
        "sampling parameter | 'temprature' | 'temperature'",
    ),
    in_python(
        "generate: temperature below 0",
        'load("letters", device="reference").generate("abc", temperature=-1)',
        "temperature | got -1 | temperature=0",
    ),
    in_python(
        "generate: top_p in percent",
        'load("letters", device="reference").generate("abc", top_p=90)',
        "top_p | got 90 | top_p=0.9",
    ),
    in_python(
        "generate: top_k of a half",
        'load("letters", device="reference").generate("abc", top_k=0.5)',
        "top_k | got 0.5 | leave it out",
    ),
    in_python(
        "generate: prompt above the context",
        'load("letters", device="reference", context=8).generate("abcdefgh" * 4)',
        "the prompt | 32 tokens, the context holds 8 | context=32",
    ),
    in_python(
        "predict of a language model",
        'load("letters", device="reference").predict(x)',
        "the network reads int32 | got float32 | ids are integers",
    ),
    in_python(
        "generate of a network of rows",
        'load("model", device="reference").generate("hello")',
        "model | not tokens | model.predict",
    ),
    in_python(
        "model of rows: another width",
        'load("model", device="reference").predict(np.zeros((3, 5), np.float32))',
        "[samples, 2] | got shape (3, 5) | x[:, :2]",
    ),
    in_python("save onto a file", 'train(net, x, y).save("points.csv")', "points.csv | is a file | choose a directory"),
    in_python(
        "save with a suffix of Keras", 'train(net, x, y).save("model.h5")', "model.h5 | cannot be written | gguf"
    ),
    in_python(
        "to_onnx of a path without suffix",
        'volumetric.loaders.save_onnx("out", net)',
        "save_onnx | needs params | save_onnx(",
    ),
    in_python("scheme of nobody", 'volumetric.Scheme.parse("int4:g")', "'int4:g' | invalid part 'g' | parts are"),
    in_python("text in place of a network", 'initialise("model")', "initialise | got str | initialise(network)"),
    in_python("None in place of a network", "train(None, x, y)", "train | got NoneType | Network(layers="),
    in_python("Grid of 0", "Grid(0, 1, 1)", "grid: depth | got 0 | Grid(4, 1, 1)"),
    in_python("data as a path that is not there", 'train(net, "xyy.npz")', "xyy.npz | No such file | 'xy.npz'"),
    in_python(
        "data as a CSV", 'train(net, "points.csv")', "an array of shape (16, 2) | reads float32 [T, 4] | 2 features"
    ),
    in_python("pandas-like columns", 'train(net, {"a": x, "b": x}, y)', "inputs | 'a', 'b' | numpy.stack"),
)
