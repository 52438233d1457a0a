"""What each verb of the extender protocol means: wire in, framework, wire out.

One module per verb (filter, prioritize, preempt, bind). Each picks the profile, turns what the scheduler sent into
candidates, runs its part of the scheduling cycle and writes the answer in the form it was asked for. bind is the one
place that touches waiting pods (``app.runtime``) and assumed pods (``app.cluster``) together.

Not here: HTTP, status codes and headers (``app.server``), how plugins are called (``app.runtime``), and any rule of
scheduling (``plugins``).
"""
