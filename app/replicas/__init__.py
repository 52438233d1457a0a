"""Several replicas: the Lease, who leads, how one takes over from another, and the authority they share.

Not here: how verbs are sent on to the leader (``app.server``), and what is written (``app.writes``).
"""
