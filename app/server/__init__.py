"""HTTP: routes, error answers, limits, TLS, and the operator's pages.

A route decodes the request, calls one verb and encodes its answer. This is the only room below ``app.main`` that knows
FastAPI, Starlette and uvicorn.

Not here: what a verb means (``app.verbs``), the JSON of extender/v1 (``app.wire``), and any choice between nodes.
"""
