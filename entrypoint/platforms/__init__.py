"""Who started the containers: Facts -> Site. One module per platform, with `matches(facts)` and `site(facts)`."""
