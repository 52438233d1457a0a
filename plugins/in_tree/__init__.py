"""Equivalents of kube-scheduler's in-tree plugins, with equal verdicts, reasons and scores (``tests/conformance``).

Exceptions: a pod is rejected, with a reason of Homeport's own, if its evaluation exceeds a limit or needs something
that Homeport does not read or support.
"""
