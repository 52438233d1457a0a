"""Homeport, a scheduler extender: the service around the plugins.

The docstring of each package describes its content. A package imports only packages of lower lines (checked by
import-linter, see ``pyproject.toml``)::

    __main__ | commands         command line; only ``__main__`` imports both ``app`` and ``plugins``
    main | wiring               create and connect all parts of the service
    homes                       list of homes, and changes of homes by hand
    server                      HTTP
    controllers | analysis      background tasks | explanations of decisions
    verbs                       filter, prioritize, preempt, bind
    memory                      caches between requests
    runtime | feeds             run plugins | fill the snapshot
    replicas | rights           leader election | permissions
    writes                      requests that change objects in the API server
    cache                       snapshot of the cluster
    framework | wire | config   plugin interface | JSON of extender/v1 | settings
    kube                        client and object models of Kubernetes
    telemetry                   metrics, traces and logs

No scheduling decision is made here: decisions are made by plugins.
"""
