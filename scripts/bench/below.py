"""Starts a program and waits for it: the least that a supervisor in Python does.

python3 -I -S below.py PROGRAM...
"""

import os
import sys

if __name__ == "__main__":
    child = os.fork()
    if not child:
        os.execvp(sys.argv[1], sys.argv[1:])
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
