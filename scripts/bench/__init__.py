"""The benchmarks of `make bench`: every row beside its comparison, raw numbers kept, the page
written from them."""
