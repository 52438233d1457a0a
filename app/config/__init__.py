"""Settings of the process, and profiles in the format of KubeSchedulerConfiguration.

All settings are declared and validated here. All mistakes in the settings are reported at once.

Not here: uses of the settings (``app.main`` passes values to other packages), arguments of plugins (each plugin
declares its own), and the effect of profiles (``app.runtime``).
"""
