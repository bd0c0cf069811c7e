"""Which job really runs: defaults of training frameworks by version and date."""
