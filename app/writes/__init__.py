"""Writes to the API server: Bindings, Evictions, nominations, fences, Events, annotations and other changes of objects.
The package also determines when they may be sent.

Not here: decisions (``app.verbs``), leadership (``app.replicas``), and reads (``app.feeds``).
"""
