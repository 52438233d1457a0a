"""What acts by itself, without being asked: each a loop that looks, decides and writes, and one who starts them all.

Not here: what a verb answers (``app.verbs``), and loops that only read (``app.feeds``, ``app.telemetry``).
"""
