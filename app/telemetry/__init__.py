"""Metrics, traces and structured logs: their names, labels and form.

The outcome of a request has the same name in logs and in metric labels.

Not here: the calls that count or log something, which are in the other packages. This package imports no other
package of ``app``.
"""
