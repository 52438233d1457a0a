"""Equivalents of kube-scheduler's plugins, with its verdicts, reasons, scores and order (``tests/conformance``)."""
