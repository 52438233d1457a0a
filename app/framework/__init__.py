"""The contract a plugin sees: extension points, Status, CycleState, NodeInfo, and the Handle's Protocols.

The vocabulary is kube-scheduler's. This is the surface third parties build on: it is explained at length and changes
with care.

``points`` has the extension points, ``spec`` how a plugin is declared, ``handle`` its services: ``counts``,
``objects`` and clocks. ``explanation`` has explanations and gauges. Authors import these from ``homeport.plugin``.

Not here: the engine behind the contract (``app.runtime``), the snapshot behind the Handle (``app.cache``), I/O of
any kind.
"""
