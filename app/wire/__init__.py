"""Decodes and encodes the JSON of extender/v1; decodes requests to ``/api/v1/cycle`` and ``/api/v1/explain``.

Answers have the form that Go clients of extender/v1 expect: names of fields, null or absent fields, and lists that are
never null.

Not here: HTTP (``app.server``), the meaning of requests (``app.verbs``), and objects of Kubernetes (``app.kube``).
"""
