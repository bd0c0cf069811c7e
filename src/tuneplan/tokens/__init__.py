"""A data set to token facts: reading, shapes, rendering, real tokenizers, the profile.

May import ``spec``, ``estimation``, ``contract``, ``errors``, ``language``, ``units``; the
tokenizer libraries (extra ``tokens``) only inside functions. Read ``profile.py`` first.
"""
