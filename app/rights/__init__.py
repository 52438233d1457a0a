"""What Homeport must be allowed to do in a cluster, why, and the question whether it is.

Not here: who may ask Homeport what (``app.server``).
"""
