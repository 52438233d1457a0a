"""Snapshot of the cluster in memory: decoded objects, node infos, assumed pods, and the counts that plugins read.

The snapshot changes only through a few methods. It does not depend on the order of events: it equals a snapshot that is
built from the current objects. kube-scheduler copies its cache to a snapshot for each cycle. Homeport needs no copy,
because the evaluation of a pod does not await, so no update can be applied during it.

Not here: sources of the objects (``app.feeds``), writes to the cluster (``app.writes``), and plugins.
"""
