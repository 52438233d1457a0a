"""Commands other than ``serve``. ``app.__main__`` parses the command line and calls them.

Commands read files, standard input, an API server, or the pages of a running Homeport over HTTP. Some print their
answer, and others return a text for the caller to print. ``questions`` runs the commands with questions about a
cluster, except ``lint`` and ``ui``. ``arguments`` defines the parser, with the flags and help texts of all commands,
including ``serve``.

Not here: the computation of answers (``app.analysis``, ``app.whatif`` and ``app.lint``).
"""
