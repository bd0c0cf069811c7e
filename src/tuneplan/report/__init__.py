"""Answers to things to read: tables, sentences, errors. Knows no terminal, prints nothing.

May import everything but ``cli``. Read ``page.py`` and ``tables.py`` first.
"""
