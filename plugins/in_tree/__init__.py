"""Equivalents of kube-scheduler's in-tree plugins, with equal verdicts, reasons and scores (``tests/conformance``).

Exceptions: a pod is rejected, with a reason that kube-scheduler does not have, if a part of it is too long to be read,
or if its evaluation exceeds a limit.
"""
