"""Plain Kubernetes: slim object models, quantities, selectors, taints, and the API client.

Models are frozen and hold only the fields that a decision reads. Only the packages that read and write the
cluster are allowed to use the client; plugins can use everything else.

Not here: anything that Homeport decides, stores or adds. Code that is specific to Homeport is in higher layers.
"""
