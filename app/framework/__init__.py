"""The contract a plugin sees: extension points, Status, CycleState, NodeInfo, and the Handle's Protocols.

The vocabulary is kube-scheduler's. This is the surface third parties build on: it is explained at length and changes
with care.

``points`` has the extension points, ``spec`` how a plugin is declared, ``handle`` what it may use: ``counts``,
``objects`` and its clocks. ``explanation`` is what it tells people. Authors import all of it from ``homeport.plugin``.

Not here: the engine behind the contract (``app.runtime``), the picture behind the Handle (``app.cache``), I/O of
any kind.
"""
