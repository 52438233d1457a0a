"""What answers people and changes nothing: evaluate, verdicts in words, and why a node refuses a pod.

Not here: what a verb answers a scheduler (``app.verbs``), and the pages that show it (``app.server``).
"""
