"""What may be opened on behalf of somebody else: the folders that the user allows, and no others.

May import ``errors`` and below. Read ``roots.py`` first.
"""
