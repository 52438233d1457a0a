"""Equivalents of kube-scheduler's in-tree plugins, with equal verdicts, reasons and scores (``tests/conformance``)."""
