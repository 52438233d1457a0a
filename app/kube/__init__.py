"""Models of Kubernetes objects, parsers of quantities, selectors and taints, and the client of the API server.

Models that plugins see are frozen and contain only the fields that decisions read. Only packages that read or write the
cluster can use the client. Plugins can use everything else.

Only two things here are specific to Homeport: the model of the custom resource Home, and the names of annotations.

Not here: scheduling decisions, which other packages make.
"""
