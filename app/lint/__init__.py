"""Rules that find mistakes in manifests and in the objects of a cluster, without scheduling a pod.

Not here: verdicts about pods (``app.analysis``, plugins), and the command line (``app.commands.lint``).
"""
