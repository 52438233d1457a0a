"""Permissions that Homeport needs in a cluster, with their reasons, and the check that they are granted.

Not here: permissions of clients that call Homeport (``app.server``).
"""
