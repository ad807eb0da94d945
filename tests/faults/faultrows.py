"""Rows of the table of faults whose tests lie in other folders."""

from __future__ import annotations

ELSEWHERE = {  # test, or the beginning of its name -> row, fault, launcher
    "tests/compose/test_memory_limit.py": ("5", "the kernel's own count, and a control", "any"),
    "tests/compose/test_small_machine.py": ("16", "a small or broken machine", "all"),
    "tests/loopback/test_clocks.py": ("16", "clocks minutes apart", "all"),
    "tests/process/test_exit_tables.py": ("17", "every status, every signal", "plain, mpirun"),
    "tests/compose/test_exit_tables_torchrun.py": ("17", "every status, every signal", "torchrun"),
}
