"""The JSON of extender/v1: what kube-scheduler posts and what it reads back, field for field.

Field names, null or absent, lists that may never be null: the promises of the protocol, decoded and encoded with
msgspec.

Not here: HTTP (``app.server``), what the fields lead to (``app.verbs``), Kubernetes' own objects (``app.kube``).
"""
