"""The picture of the cluster and its feeds: live watch, saved cluster file, objects of a test case.

Slim objects and node infos, pods assumed but not yet seen bound, the counts that plugins ask for, list-then-watch,
leadership. The picture changes through a handful of calls, so that its state after any interleaving of events equals
a rebuild from the end result.

Not here: plugins and how they are run (``app.runtime`` is next door and unknown), and what a verb answers.
"""
