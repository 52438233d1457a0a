"""Homeport, a scheduler extender: the service around the plugins.

The docstring of each package describes its content. A package imports only packages of lower lines (checked by
import-linter, see ``pyproject.toml``)::

    __main__                    command line; the only module of ``app`` that imports ``plugins``
    commands                    commands other than ``serve``
    main                        create, connect, start and stop all parts of the service
    wiring                      factories for ``main``
    lint                        rules that find mistakes in manifests and objects
    whatif                      simulated changes of the cluster
    homes                       list of homes, and changes of homes by hand
    server                      HTTP
    controllers                 background tasks
    analysis                    explanations of decisions
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
