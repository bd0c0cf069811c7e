"""The job file and every answer as pydantic models: one source of validation and JSON Schema.

May import ``search``, ``economics``, ``estimation``, ``spec`` and the ground floor; is the only
room that knows pydantic. Read ``job.py`` first (the keys), then ``reading.py`` (how they are read).
"""

from typing import Final

SCHEMA_VERSION: Final = 1  # of the answers: fields may be added within it, none changes or goes
