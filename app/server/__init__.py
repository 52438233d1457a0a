"""HTTP: routes, error answers, limits, TLS, and the operator's pages.

An endpoint reads a body, calls one verb and sends its answer, all in time. With ``app.homes`` this is the only
room below ``app.main`` that knows FastAPI, Starlette and uvicorn.

Not here: what a verb means (``app.verbs``), the JSON of extender/v1 (``app.wire``), and any choice between nodes.
"""
