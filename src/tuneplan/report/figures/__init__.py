"""How each figure of an estimate comes about, as a tree of formulas with their inputs.

Read ``tree.py`` first. Each module maps figures (paths in the answer) to functions that explain.
"""
