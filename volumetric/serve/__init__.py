"""An HTTP server with the interface of OpenAI's API: many users, one engine for each model.

`run.Server` runs what `app.application` makes. Requests are read by `fields`, what is wrong with them is a
`problem.RequestError`, `engine.Engine` computes them together in a thread of its own, and `shapes` writes answers.
"""
