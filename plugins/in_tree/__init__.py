"""Plugins of kube-scheduler, mirrored: its verdicts, reasons, scores and order (``tests/conformance``)."""
