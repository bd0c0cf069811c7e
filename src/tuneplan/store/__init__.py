"""Measurements, kept: one SQLite file, append-only, safe with several processes at once.

May import contract and below; read ``store.py`` first.
"""
