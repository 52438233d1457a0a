"""Sources of the snapshot: list and watch of a live cluster, one listing of it, or a saved cluster file.

Not here: the snapshot and its derived data (``app.cache``), writes to the cluster (``app.writes``), plugins and verbs.
"""
