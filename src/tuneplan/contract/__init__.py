"""The job file and every answer as pydantic models: the one source of validation and JSON Schema."""
