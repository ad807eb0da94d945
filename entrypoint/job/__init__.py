"""The job as a state machine: events in, actions out. It has no clock, starts no process and opens
no socket."""
