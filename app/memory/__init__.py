"""Caches between requests: refusals, last results of filter, picks, expected binds, and refused pods.

Each can be cleared at any time, because no answer becomes wrong without it: it is computed again, or picked again.

Not here: the meaning of an answer (``app.verbs``), and caches of plugins (``app.runtime``, ``plugins``).
"""
