"""Metrics, traces and structured logs: their names, labels and form.

The outcome of a request has the same name in logs and in metric labels.

Not here: the code that counts or logs an event, which is in the package of the event. This package imports no other
package of ``app``.
"""
