"""Ask a running server to continue a text, piece by piece; the standard library is enough.

``python client.py [ADDRESS] [PROMPT]``
"""

from __future__ import annotations

import json
import sys
from urllib.request import Request, urlopen

address = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
prompt = sys.argv[2] if len(sys.argv) > 2 else "And the king said "

with urlopen(f"{address}/v1/models") as answer:
    model = json.load(answer)["data"][0]["id"]
print(f"model {model}")

question = {"model": model, "prompt": prompt, "max_tokens": 120, "temperature": 0.5, "seed": 1, "stream": True}
request = Request(f"{address}/v1/completions", json.dumps(question).encode(), {"Content-Type": "application/json"})
print(prompt, end="")
with urlopen(request) as events:  # lines "data: {…}", the last one is "data: [DONE]"
    for line in events:
        event = line.decode().removeprefix("data: ").strip()
        if event and event != "[DONE]":
            for choice in json.loads(event)["choices"]:
                print(choice["text"], end="", flush=True)
print()
