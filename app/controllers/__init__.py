"""What acts by itself, without being asked: each a controller that looks, decides and writes, run by one supervisor.

The sampling guard (``sampling_guard``, with ``cases``, ``nominations``, ``pacing`` and ``unshown``), ``second_looks``,
the ``recount``. The ``supervisor`` knows who leads, and no controller asks.

Not here: what a verb answers (``app.verbs``), and loops that only read (``app.feeds``, ``app.telemetry``).
"""
