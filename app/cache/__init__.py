"""Snapshot of the cluster in memory: decoded objects, node infos, assumed pods, and the counts that plugins read.

It changes through a few methods only, and after any order of events it equals one that is built from the end result.
kube-scheduler has a cache and a snapshot of it for each cycle. Here one object is both, because no code awaits while it
reads.

Not here: where objects come from (``app.feeds``), what is written to the cluster (``app.writes``), and plugins.
"""
