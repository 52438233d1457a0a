"""Writes to the API server: Bindings, annotations, nominations, fences and Events, and when they may be sent.

Not here: decisions (``app.verbs``), leadership (``app.replicas``), and reads (``app.feeds``).
"""
