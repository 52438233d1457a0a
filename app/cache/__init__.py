"""Snapshot of the cluster in memory: decoded objects, node infos, assumed pods, and the counts that plugins read.

The snapshot changes only through a few methods. After any order of events it equals a snapshot that is built from the
resulting objects. kube-scheduler has a cache, and copies it to a snapshot for each cycle. In Homeport, one object
serves as both, because no code awaits while it evaluates a pod.

Not here: sources of the objects (``app.feeds``), writes to the cluster (``app.writes``), and plugins.
"""
