"""Decodes and encodes the JSON of extender/v1; decodes requests to ``/api/v1/cycle`` and ``/api/v1/explain``.

Answers of extender/v1 have the form that Go clients expect. This concerns names of fields, fields that are null or
absent, and lists that must not be null. The server uses the models of answers below ``/api/v1`` only for the OpenAPI
document. The commands check answers with them.

Not here: HTTP (``app.server``), the meaning of requests (``app.verbs``), and objects of Kubernetes (``app.kube``).
"""
