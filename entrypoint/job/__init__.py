"""The job as a state machine: events in, actions out. No clock, no process, no network: all that is told to it."""
