"""What is wrong with a job: why memory ran out, the usual mistakes, good advice.

Pure: texts and values in, findings out. May import: ``estimation``, ``spec``, ``errors``,
``language``, ``units``. Read first: the module whose question you have.
"""
