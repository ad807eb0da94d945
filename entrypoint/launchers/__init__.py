"""The launchers that start the ranks. One module for each, with `plan(spec, topology)` ->
Launch."""
