"""What people ask about homes and do to them: the list, what a drain would mean, and changes by hand.

Not here: what a policy means and who writes homes (``plugins.sticky_node``), and the commands (``app.commands``).
"""
