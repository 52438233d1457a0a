"""Memory between requests: refusals, last results of filter, picks, expected binds, refused pods, and two tables.

The tables contain the pods with fallbacks, and the known domains. All of it can be lost at any time: Homeport then
computes an answer or picks a node again, and times of the tables start anew. ``preemption_tracker`` is only an
interface.

Not here: the meaning of an answer (``app.verbs``), and caches of plugins (``app.runtime``, ``plugins``).
"""
