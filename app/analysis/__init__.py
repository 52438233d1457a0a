"""Read-only analysis: evaluation of saved cases, verdicts as JSON, and the reasons why a node rejects a pod.

Not here: answers to a scheduler (``app.verbs``), and web pages with verdicts (``app.server``).
"""
