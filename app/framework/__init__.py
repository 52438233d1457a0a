"""The contract with plugins: extension points, Status, CycleState, NodeInfo, and the protocols of the Handle.

Names are those of kube-scheduler. Third-party plugins depend on this package, so incompatible changes must be avoided.

``points`` has the extension points, and ``spec`` the declaration of a plugin. ``handle`` has the services that a plugin
can call; some of their interfaces are in ``counts`` and ``objects``. ``explanation`` has explanations and gauges.
Authors of plugins import all of these from ``homeport.plugin``.

Not here: the engine (``app.runtime``), the snapshot behind the Handle (``app.cache``), and any I/O.
"""
