"""The JSON of extender/v1, and of ``/api/v1/cycle`` and ``/api/v1/explain``, decoded and encoded with msgspec.

This package guarantees what Go clients expect: field names, absent and null fields, and lists that are never null.

Not here: HTTP (``app.server``), the meaning of requests (``app.verbs``), and objects of Kubernetes (``app.kube``).
"""
