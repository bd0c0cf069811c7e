"""Other people's configurations: one module a framework, each with the same three functions.

May import: ``contract`` (its documents), ``spec``, ``errors``, ``language``, ``units``. Read first:
``foreign.py`` (the values and the surface of a format), then ``carrying.py`` (how a format notes
what became of every key), then ``registry.py`` (which formats there are).
"""
