"""The command line, on click: one module a command, flags to job to use-case to report to stdout.

May import every room but ``__main__``; is the only one that knows click and the only one that
prints. Read ``main.py`` first (exit statuses), then ``commands.py`` (what there is).
"""
