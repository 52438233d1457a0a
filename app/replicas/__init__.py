"""Leader election between replicas: the Lease, take-over and hand-over, and the certificate authority they share.

Other packages use only the interface in ``leadership``, which a single process implements too.

Not here: forwarding verbs to the leader (``app.server``), and writes to the API server (``app.writes``).
"""
