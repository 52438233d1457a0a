"""What is remembered between requests: refusals, what filter passed and picked last, expected binds, who was refused.

All of it can be forgotten at any time: an answer is then computed, and is the same.

Not here: what an answer means (``app.verbs``), and what plugins remember (``app.runtime``, ``plugins``).
"""
