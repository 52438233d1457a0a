"""Metrics, traces and structured logs: their names, labels and form.

The outcome of a request is the same word in logs, metric labels and tests.

Not here: when something is counted or logged (see the package where it happens). Imports no other package.
"""
