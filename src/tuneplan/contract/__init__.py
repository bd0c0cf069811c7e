"""The job file and every answer as pydantic models: one source of validation and JSON Schema.

May import ``search``, ``economics``, ``estimation``, ``spec`` and the ground floor; is the only
room that knows pydantic. Read ``job.py`` first (the keys), then ``reading.py`` (how they are read).
"""
