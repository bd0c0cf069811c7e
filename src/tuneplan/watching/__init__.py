"""A live run against its plan: progress, arrival, alerts.

``pace`` and ``alerts`` only calculate; ``following`` reads growing logs, ``devices`` asks the
driver. May import logs and below; read ``watcher.py`` first.
"""
