"""The benchmarks of `make bench`: every row next to its comparison, raw numbers kept, the page
written from them."""
