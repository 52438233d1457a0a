"""What fills the picture: list-then-watch of a live cluster, or a saved cluster file.

Not here: what the picture keeps and derives (``app.cache``), what is written (``app.writes``), plugins and verbs.
"""
