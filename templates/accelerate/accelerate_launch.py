# Rendered by entrypoint {{ version | comment }}.
#
# This is `accelerate launch` with one of its habits changed:
#
#     python accelerate_launch.py accelerate.commands.accelerate_cli launch OPTION ... -- PROGRAM
#
# Alone, accelerate starts the processes that it is asked for only where it sees several GPUs, or is
# told of them, of FSDP or of DeepSpeed; else it starts one on each node, which trains alone and
# does not say so. On CPUs its processes train together only with ACCELERATE_USE_CPU. Here it starts
# them by torch's launcher in all cases, which torch_launch.py changes.
import os
import runpy
import sys
from importlib.util import find_spec

here = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = os.getcwd()
for package in ("accelerate", "torch"):
    if find_spec(package) is None:
        what = f"{package} is not installed in {sys.executable}"
        do = "install it there, or start the program with the Python that has it"
        print(f"accelerate_launch.py: EP650 {what} | accelerate needs it | {do}", file=sys.stderr)
        sys.exit(78)

import torch  # noqa: E402
from accelerate.commands import launch  # noqa: E402

by_torch = launch.multi_gpu_launcher


def together(args):
    there = torch.accelerator if hasattr(torch, "accelerator") else torch.cuda  # since torch 2.6
    if args.cpu or getattr(args, "use_cpu", False) or not there.is_available():
        os.environ.setdefault("ACCELERATE_USE_CPU", "true")
    by_torch(args)


launch.multi_gpu_launcher = launch.simple_launcher = together
runpy.run_path(f"{here}/torch_launch.py", run_name="__main__")
