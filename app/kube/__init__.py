"""Models of Kubernetes objects, parsers of quantities, selectors and taints, and the client of the API server.

Models are frozen and hold only the fields that decisions read. Only the packages that read and write the cluster are
allowed to use the client; plugins can use everything else.

Specific to Homeport are only the model of its custom resource Home and the names of its annotations.

Not here: decisions, which other packages make.
"""
