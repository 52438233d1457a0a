"""Read-only analysis: evaluation of saved cases, verdicts as JSON, explanations, and why spread keeps a pod waiting.

Not here: answers to a scheduler (``app.verbs``), and web pages with verdicts (``app.server``).
"""
