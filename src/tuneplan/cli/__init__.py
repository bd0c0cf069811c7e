"""click: flags to a request to a use-case to a report to the terminal."""
