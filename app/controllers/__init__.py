"""Controllers: background loops that watch the cache, decide and write, started and stopped by one supervisor.

The sampling guard (``sampling_guard``, with ``cases``, ``nominations``, ``pacing`` and ``unshown``), ``second_looks``,
``expiring``, ``plugin_runs`` and ``recount``. Only the ``supervisor`` checks whether this process leads.

Not here: answers to verbs (``app.verbs``), and loops that only read (``app.feeds``, ``app.telemetry``).
"""
