"""Functions for operators of homes: the list, the restarts of pods after a drain, and manual changes.

Not here: policies and the code that writes homes (``plugins.sticky_node``), and the commands (``app.commands``).
"""
