"""Caches between requests: refusals, last results of filter, picks, expected binds, and refused pods.

Each cache can be cleared at any time. Homeport then computes the answer, or picks the node, again.

Not here: the meaning of an answer (``app.verbs``), and caches of plugins (``app.runtime``, ``plugins``).
"""
