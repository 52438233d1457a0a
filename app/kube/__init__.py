"""Models of Kubernetes objects, parsers of quantities, selectors and taints, and the client of the API server.

Models are frozen and hold only the fields that decisions read. Only the packages that read and write the cluster are
allowed to use the client; plugins can use everything else.

Only the model of the custom resource Home and the names of Homeport's annotations are specific to Homeport.

Not here: decisions, which other packages make.
"""
