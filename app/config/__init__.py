"""Settings of the process, and the profile document in KubeSchedulerConfiguration's own words.

Everything an operator can set is declared and checked here; all mistakes in a document are shown at once.

Not here: reading settings anywhere else (values are passed down by ``app.main``), the arguments of a plugin (they are
declared in the plugin), and what a profile does (``app.runtime``).
"""
