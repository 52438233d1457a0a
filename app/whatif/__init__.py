"""Simulated changes on a copy of the cluster, such as new pods, a drained node or a lost zone, and what follows.

Not here: why a pod that exists waits (``analysis``), and the homes on a node (``homes``).
"""
