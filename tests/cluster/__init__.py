"""A whole cluster with real nodes, made from Go modules and Debian packages, and the image that runs on it.

`image` builds the image and measures it, `tests.debian` installs what Debian has, `cluster` starts the nodes in
namespaces of their own; the tests here are stories played on it. They need root, and `make cluster-test` runs them.
"""
