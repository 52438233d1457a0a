"""Settings of the process, and profiles in the format of KubeSchedulerConfiguration.

All options are declared and validated here; all mistakes in a file are reported at once.

Not here: other reads of settings (``app.main`` passes values down), arguments of plugins (declared in the plugin), and
the effect of profiles (``app.runtime``).
"""
