"""Model files: reading, resolving, converting, writing. The only home of tokenizers, jinja2, gguf and the hub."""
