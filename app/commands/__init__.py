"""Commands other than ``serve``: one module each, called by ``app.__main__`` with all parameters.

They read files and standard input, call a running Homeport over HTTP, and print text for terminals and pipes.

``arguments`` defines their flags and help texts.

Not here: parsing (``app.__main__``), and the meaning of verbs (``app.verbs``).
"""
