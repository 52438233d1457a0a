"""Sources of the snapshot: list and watch of a live cluster, or a saved cluster file.

Not here: the snapshot and its derived data (``app.cache``), what is written (``app.writes``), plugins and verbs.
"""
