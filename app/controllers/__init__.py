"""Controllers: background loops that act on what the cache holds. Most of them write to the cluster.

They are the sampling guard (``sampling_guard``, with ``cases``, ``nominations``, ``pacing`` and ``unshown``),
``preemption`` (with ``preemption_steps``, ``preemptor``, ``preemptors`` and ``victim_search``), ``second_looks``,
``expiring``, ``plugin_runs``, ``recount``, ``spread_events``, ``fallbacks`` and ``missing_domains``. The ``supervisor``
starts and stops them, and is the only module here that checks whether this process leads.

Not here: answers to verbs (``app.verbs``), and loops that only read (``app.feeds``, ``app.telemetry``).
"""
