"""An interface for AI agents: the commands as tools of the Model Context Protocol, over stdio.

Each call is a command in a process of its own, with limits of time and memory, that reads nothing
outside the folders which the user allows. May import contract and below; read ``server.py`` first.
"""
