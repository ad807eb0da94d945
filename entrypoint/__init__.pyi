from entrypoint.cli.api import EntrypointError as EntrypointError
from entrypoint.cli.api import JobSpec as JobSpec
from entrypoint.cli.api import explain as explain
from entrypoint.cli.api import load_spec as load_spec
from entrypoint.cli.api import plan as plan

__version__: str
