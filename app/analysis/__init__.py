"""Read-only analysis: evaluation of saved cases, verdicts as JSON, explanations, and skew of workloads.

Not here: answers to a scheduler (``app.verbs``), and web pages with verdicts (``app.server``).
"""
