"""Mistakes on the command line: models, rows, prompts, and flags of other programs."""

from __future__ import annotations

from tests.project.mistakes.mistake import on_command_line

MISTAKES = (
    on_command_line("run without a model", "run", "run | needs a model | volumetric run MODEL"),
    on_command_line("model that is not there", "run modle --in rows.npz", "'modle' | no file or directory | 'model'"),
    on_command_line("rows that are not there", "run model --in row.npz", "row.npz | No such file | 'rows.npz'"),
    on_command_line(
        "rows of another width",
        "run model --in wide.npz",
        "wide.npz: input 'input' | expected [T, 2] | volumetric inspect MODEL",
    ),
    on_command_line("rows of another name", "run model --in other.npz", "other.npz | no input 'x' | 'input'"),
    on_command_line(
        "rows of words", "run model --in words.jsonl", "words.jsonl, line 1 | got text | a list of numbers"
    ),
    on_command_line(
        "rows of another width in JSON",
        "run model --in wide.jsonl",
        "wide.jsonl, line 1 | expected [2], got [3] | 2 numbers",
    ),
    on_command_line("picture as rows", "run model --in picture.png", "picture.png | not images | --in rows.npz"),
    on_command_line("prompt for rows", "run letters hello", "run | 'hello' | volumetric generate"),
    on_command_line("model of rows for text", "generate model hello", "model | not tokens | volumetric run MODEL"),
    on_command_line(
        "generate without a prompt", "generate letters --prompt", "--prompt | needs a value | --prompt VALUE"
    ),
    on_command_line(
        "generate of a model that is not there", "generate lettres abc", "'lettres' | no file or directory | 'letters'"
    ),
    on_command_line(
        "generate of an org on a hub without network",
        "generate meta-llama/Llama-9-8B hi",
        "Llama-9-8B | neither a local path | --offline",
        slow=True,
    ),
    on_command_line("generate of a TOML", "generate train.toml hi", "train.toml | not a model file | volumetric train"),
    on_command_line("empty GGUF", "generate empty.gguf hi", "empty.gguf | is empty | download or export"),
    on_command_line("PyTorch file", "generate weights.pt hi", "weights.pt | pickle | safetensors"),
    on_command_line(
        "temperature below 0", "generate letters abc --temperature -1", "temperature | got -1.0 | --temperature 0.8"
    ),
    on_command_line(
        "temperature as a word", "generate letters abc --temperature hot", "--temperature | got 'hot' | 0.8"
    ),
    on_command_line("top-p above 1", "generate letters abc --top-p 95", "top_p | got 95.0 | --top-p 0.95"),
    on_command_line("tokens below 0", "generate letters abc --max-tokens -5", "max_tokens | got -5 | leave it out"),
    on_command_line(
        "llama.cpp: n-predict misspelled",
        "generate letters abc --n-predit 5",
        "--n-predit | unknown flag | --n-predict",
    ),
    on_command_line("llama.cpp: mirostat", "generate letters abc --mirostat 2", "--mirostat | unknown flag | --top-p"),
    on_command_line(
        "llama.cpp: grammar",
        "generate letters abc --grammar-file g.gbnf",
        "--grammar-file | unknown flag | volumetric serve",
    ),
    on_command_line("llama.cpp: gpu layers as a word", "generate letters abc -ngl all", "-ngl | got 'all' | 99"),
    on_command_line("llama.cpp: tensor split", "generate letters abc -ts 1,1", "-ts | unknown flag | --device gpu:1"),
    on_command_line(
        "vLLM: tensor parallel",
        "serve letters --tensor-parallel-size 2",
        "--tensor-parallel-size | unknown flag | --device gpu:1",
    ),
    on_command_line(
        "vLLM: gpu memory",
        "serve letters --gpu-memory-utilization 0.9",
        "--gpu-memory-utilization | unknown flag | --kv-memory",
    ),
    on_command_line(
        "vLLM: trust remote code", "serve letters --trust-remote-code", "--trust-remote-code | refused | built-in"
    ),
    on_command_line("port in use as text", "serve letters --port http", "--port | got 'http' | 8080"),
    on_command_line("port too large", "serve letters --port 99999", "port 99999 | 0-65535 | --port", slow=True),
    on_command_line("chat with a model without a template", "chat model", "model | not tokens | volumetric run"),
    on_command_line(
        "convert without a target", "convert model", "convert | the file or directory to write | SOURCE TARGET"
    ),
    on_command_line("convert to a format of nobody", "convert model model.h5", "model.h5 | cannot be written | gguf"),
    on_command_line("convert to PyTorch", "convert model model.pt", "model.pt | cannot be written | gguf"),
    on_command_line("convert to itself", "convert model model", "model | also the source | another target"),
    on_command_line(
        "convert over a file that exists", "convert model points.csv", "points.csv | not overwritten | --overwrite"
    ),
    on_command_line("convert to a type of nobody", "convert model out --dtype int5", "--dtype | 'int5' | int4"),
    on_command_line("convert network of rows to GGUF", "convert model out.gguf", "model | no family | native"),
    on_command_line("inspect of a table", "inspect points.csv", "points.csv | not a model file | volumetric train"),
    on_command_line("inspect of a folder without a model", "inspect folder", "folder | empty | safetensors"),
    on_command_line("compare one", "compare model", "compare | needs a second model | MODEL OTHER"),
    on_command_line(
        "merge of two different models",
        "merge model letters merged",
        "model and letters | same architecture | same type and sizes",
    ),
    on_command_line("scope of what is not there", "scope show model", "show | no file or directory | hub id"),
    on_command_line(
        "scope of a table", "scope points.csv --html", "points.csv | nothing of the run can be read | volumetric train"
    ),
    on_command_line("recording without rows", "scope model -o a.scope", "scope model | needs rows | --in FILE"),
    on_command_line(
        "program check of a file that is not there",
        "program check agent.json",
        "agent.json | No such file | program.json",
    ),
    on_command_line(
        "program check of a network", "program check train.toml", "train.toml | not valid JSON | save_program"
    ),
    on_command_line("tasks of nobody", "tasks train copyy", "tasks | 'train' | list"),
    on_command_line(
        "evolve plot of nothing", "evolve plot folder", "folder/history.jsonl | No such file | run's directory"
    ),
    on_command_line("evolve plot without a run", "evolve plot", "evolve plot | needs the directory | evolve plot RUN"),
    on_command_line(
        "evolve resume of a folder without a run",
        "evolve --resume folder",
        "folder | not the directory of a run | evolve wrote",
    ),
    on_command_line(
        "generations as a word", "evolve evolve.toml --generations many", "--generations | got 'many' | 10"
    ),
    on_command_line(
        "pop size as a flag", "evolve evolve.toml --pop-size 20", "--pop-size | unknown flag | --set population="
    ),
    on_command_line(
        "format without plot", "evolve evolve.toml --format svg", "--format | only to pictures | evolve plot RUN"
    ),
    on_command_line(
        "perplexity of a text that is not there",
        "perplexity letters --file story.tx",
        "story.tx | No such file | 'story.txt'",
    ),
    on_command_line("devices with an argument", "devices gpu", "devices | 'gpu' | volumetric devices"),
    on_command_line("verbose twice and quiet", "generate letters abc --quite", "--quite | unknown flag | --quiet"),
    on_command_line("two prompts", "generate letters abc def", "generate | 'def' | in quotes"),
    on_command_line(
        "a system prompt file that is not there",
        "generate letters abc -sysf no.txt",
        "no.txt | No such file | 'notes.txt'",
    ),
    on_command_line("context as a word", "generate letters abc --context max", "--context | got 'max' | 4096"),
    on_command_line("kv type", "generate letters abc -ctk q4_0", "keys and values | q4_0 | int8"),
    on_command_line("seed as a word", "generate letters abc --seed random", "--seed | got 'random' | 1"),
)
