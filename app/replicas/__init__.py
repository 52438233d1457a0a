"""Several replicas: the Lease, who leads, how one takes over from another, and the authority they share.

``leadership`` is all that others ask; a process alone is asked the same.

Not here: how verbs are sent on to the leader (``app.server``), and what is written (``app.writes``).
"""
