"""Commands other than ``serve``, in one module each. ``app.__main__`` parses the command line and calls them.

Commands read files, standard input, an API server, or the pages of a running Homeport over HTTP. Some print their
answer, and others return a text, which ``app.__main__`` prints. ``arguments`` defines the flags and help texts of all
commands, including ``serve``.

Not here: parsing of the command line (``app.__main__``), and the rules that the commands apply (``app.verbs``).
"""
