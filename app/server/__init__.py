"""HTTP: routes, error answers, limits, TLS, and the operator's pages.

An endpoint of a verb reads a body, calls the verb, and sends its answer before the deadline. Besides the pages of
``app.homes`` and ``app.whatif``, and ``app.main``, only this package imports FastAPI, Starlette and uvicorn.

Not here: the meaning of verbs (``app.verbs``), the JSON of extender/v1 (``app.wire``), and any choice between nodes.
"""
