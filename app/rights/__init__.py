"""Permissions that Homeport needs in a cluster, with their reasons, and the check that they are granted.

Not here: access of clients to Homeport (``app.server``).
"""
