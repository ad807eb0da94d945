"""`entrypoint check`: from what nodes see of themselves to findings, and to the table that people read. Pure."""
