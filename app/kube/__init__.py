"""Kubernetes as such: slim object models, quantities, selectors, taints, and the API client.

Models are frozen and hold only the fields that a decision reads. Only the rooms that read and write the
cluster may use the client; plugins may use everything else.

Not here: anything Homeport decides, remembers or adds. What would not be true in a cluster without Homeport lives
higher up.
"""
