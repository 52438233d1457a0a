"""What each verb means: wire in, framework, wire out.

One module each for filter, prioritize, preempt and bind, and for what other schedulers ask (``cycle``); beside
them what several of these share: what they are given (``context``), the nodes of a request
(``candidates``), long work in short steps (``slices``). bind is the one that touches waiting pods
(``app.runtime``) and assumed pods (``app.cache``) together.

Not here: HTTP, status codes and headers (``app.server``), what is remembered (``app.memory``), how plugins are called
(``app.runtime``), and any rule of scheduling (``plugins``); what only people ask (``app.analysis``).
"""
