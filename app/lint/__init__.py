"""Mistakes that can be seen without scheduling, in manifests and in the objects of a cluster.

Not here: verdicts about pods (``app.analysis``, plugins), and the command line (``app.commands.lint``).
"""
