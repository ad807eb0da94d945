"""Where the time of a boot went: what the nodes recorded, on one axis, as text, trace and page. Functions only."""
