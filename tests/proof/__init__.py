"""Which tests run, what each of them depends on, and what came of them."""
