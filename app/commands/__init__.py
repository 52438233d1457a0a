"""The commands beside ``serve``: one module each, called by ``app.__main__`` with everything they need.

They read files and standard input, ask a running Homeport over HTTP, and print for a person or a pipe.

``arguments`` has their flags and texts of help.

Not here: what each command is given (``app.__main__``), and anything a verb means (``app.verbs``).
"""
