"""The timeline of a boot: what the nodes recorded, on one axis, as text, trace and page. Pure functions."""
