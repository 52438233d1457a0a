"""Metrics and structured logs: their names, labels and shape, declared once.

One outcome word per request is log field, metric label and test expectation alike.

Not here: when something is counted or logged (the room where it happens decides), and any import of another room.
"""
