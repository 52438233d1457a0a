"""Operator functions for homes: the list, the plan of a drain, and manual changes.

Not here: policies and the code that writes homes (``plugins.sticky_node``), and the commands (``app.commands``).
"""
