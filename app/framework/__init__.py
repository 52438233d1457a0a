"""The contract with plugins: extension points, Status, CycleState, NodeInfo, and the protocols of the Handle.

Names follow kube-scheduler. Third-party plugins depend on this package, so it changes with care.

``points`` has the extension points, ``spec`` the declaration of a plugin, ``handle`` its services: ``counts``,
``objects`` and clocks. ``explanation`` has explanations and gauges. Authors of plugins import these from
``homeport.plugin``.

Not here: the engine (``app.runtime``), the snapshot behind the Handle (``app.cache``), and any I/O.
"""
