"""Decodes and encodes the JSON of extender/v1, and decodes that of ``/api/v1/cycle`` and ``/api/v1/explain``.

This package guarantees what Go clients expect of extender/v1: names of fields, null or absent fields, and lists that
are never null.

Not here: HTTP (``app.server``), the meaning of requests (``app.verbs``), and objects of Kubernetes (``app.kube``).
"""
