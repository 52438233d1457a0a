"""Leader election between replicas: the Lease, take-over and hand-over. Also the replicas' certificate authority.

``leadership`` is the interface through which other packages ask whether this process leads, also with a single process.

Not here: forwarding verbs to the leader (``app.server``), and writes to the API server (``app.writes``).
"""
