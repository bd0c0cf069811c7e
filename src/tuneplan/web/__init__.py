"""The page: a form on one side, the answer on the other, and the same answers as JSON.

May import everything but ``cli``; computes nothing itself. Read ``app.py``, then
``views/__init__.py``.
"""
