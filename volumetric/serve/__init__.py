"""An HTTP server with OpenAI's API: many clients, one engine for each model.

`run.Server` runs the ASGI application of `app.application`. `fields` parses requests, and raises `problem.RequestError`
for invalid ones. `engine.Engine` computes requests together in its own thread, and `shapes` writes the responses.
"""
