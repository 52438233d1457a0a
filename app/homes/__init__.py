"""Homes for users and what-ifs: the list of homes, where pods start after a drain, changes by hand, evictable pods.

Not here: policies and the code that writes homes (``plugins.sticky_node``), and the commands (``app.commands``).
"""
