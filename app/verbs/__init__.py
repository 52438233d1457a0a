"""The verbs of the scheduler extender: decode a request, call the framework, encode the answer.

``filter``, ``prioritize``, ``preempt`` and ``bind`` have a module each, and ``cycle`` runs whole scheduling cycles for
other schedulers. They share ``context`` (dependencies), ``candidates`` (nodes of a request) and ``stepwise`` (long work
in short steps). Only bind deals with pods that wait at Permit (``app.runtime.waiting``) and with assumed pods.

Not here: HTTP, status codes and headers (``app.server``), caches between requests (``app.memory``), calls of plugins
(``app.runtime``), scheduling rules (``plugins``), and questions of operators (``app.analysis``).
"""
