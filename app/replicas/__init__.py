"""Leader election between replicas: the Lease, take-over and hand-over, and the certificate authority they share.

Other packages use ``leadership`` only; its interface is the same for a single process.

Not here: forwarding verbs to the leader (``app.server``), and writes to the API server (``app.writes``).
"""
