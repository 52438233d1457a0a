"""Caches between requests: refusals, last results of filter, picks, expected binds, and refused pods.

Each can be cleared at any time: answers are then computed again, with the same result.

Not here: the meaning of an answer (``app.verbs``), and caches of plugins (``app.runtime``, ``plugins``).
"""
