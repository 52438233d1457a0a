"""Metrics, traces and structured logs: their names, labels and form.

The outcome of a request has the same name in logs and in metric labels.

Not here: when something is counted or logged, which is in the package where it happens. This package imports no other
package of ``app``.
"""
