"""What the ranks compute on: Facts -> Device. One module per kind, with `matches(facts)` and `device(facts)`."""
