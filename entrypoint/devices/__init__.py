"""The accelerators of the ranks: Facts -> Device. One module per kind, with `device(facts)`
and, unless it is the default, `matches(facts)`."""
