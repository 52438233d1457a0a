"""The picture of the cluster, kept in memory: slim objects, node infos, assumed pods, and the counts plugins ask for.

It changes through a handful of calls, so that its state after any interleaving of events equals a rebuild from the end
result. kube-scheduler's words for it are cache and snapshot: here one serves as both, for nobody waits while he reads.

Not here: where objects come from (``app.feeds``), what is written to the cluster (``app.writes``), and plugins.
"""
