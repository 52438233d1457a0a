"""The engine that runs plugins: registry, profiles, scheduling cycle, caches of verdicts, and the guard around plugin
calls.

The engine runs the extension points in their order, and converts an exception of a plugin into a status that names the
plugin. An evaluation of filters or scores contains no ``await``, so it uses one consistent snapshot. The engine also
holds the pods that wait at Permit.

Not here: plugins, and the snapshot of the cluster, which is passed in through protocols (``app.framework`` and
``snapshot``).
"""
