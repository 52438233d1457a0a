"""Read-only analysis: saved cases, verdicts as text, and the reasons why a node rejects a pod.

Not here: answers of verbs to a scheduler (``app.verbs``), and the pages that show them (``app.server``).
"""
