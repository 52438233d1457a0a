"""What-if: simulates changes on a copy of the cluster: pods that are added, nodes that are drained, domains that are lost.

Not here: why a pod that exists waits (``analysis``), and the homes on a node (``homes``).
"""
