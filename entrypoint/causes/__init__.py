"""Judges why a rank or program failed, by its output, its exit status and its node's measurements.

Pure: the job uses it while it runs, `entrypoint explain FILE` for logs of other jobs. The table of
signatures is the one source of both, and of the page "Why did my job stop?".
"""
