"""Answers to what-if questions, computed on a scratch copy of the snapshot: pods of manifests, and where pods would go.

Not here: verdicts on one pod (``app.analysis``), and everything that writes to a cluster (``app.writes``).
"""
