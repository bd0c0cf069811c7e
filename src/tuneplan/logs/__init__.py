"""Logs of runs, as training leaves them behind, read into ``spec.run_log`` values.

One module a format; each tells whether a file is of its format and reads it. Nothing is executed.
May import contract and below; read ``registry.py`` first.
"""
