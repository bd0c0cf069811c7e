"""What is asked, and of what: frozen values only, no behaviour beyond derived figures.

May import: ``errors``, ``language``, ``units``. Read first: ``architecture.py``, ``recipe.py``.
"""
