"""What Homeport writes to the cluster: Bindings, annotations, nominations, fences and Events, and when they may leave.

Not here: what is decided (``app.verbs``), who leads (``app.replicas``), and reading (``app.feeds``).
"""
