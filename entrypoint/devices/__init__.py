"""The accelerators of the ranks: Facts -> Device. One module per kind, with `matches(facts)` and
`device(facts)`."""
