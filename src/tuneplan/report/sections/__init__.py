"""The parts of a document, one module a part; each gives blocks of ``report/view.py``.

May import what the report may. Read ``report/document.py`` first, which puts them in order.
"""
