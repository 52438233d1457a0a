"""Homeport, a scheduler extender: the service around the plugins.

A room is a package in here; its docstring says what lives in it and what must not. Higher rooms import lower ones,
never the reverse (kept by import-linter, see ``pyproject.toml``)::

    __main__              command line, the only room that sees app and plugins
    main                  composition root: every dependency is passed, none looked up
    server                HTTP
    verbs                 filter, prioritize, preempt, bind
    runtime | cluster     the engine that runs plugins | the snapshot of the cluster
    framework | wire | config
    kube                  Kubernetes as such
    telemetry             metrics and logs

What must not live here: scheduling decisions. They are plugins.
"""
