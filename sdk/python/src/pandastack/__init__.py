"""PandaStack: sandboxes for code that nobody has reviewed.

    from pandastack import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.exec("echo hello").stdout)

PandaStack (also Client) talks to a server; AsyncPandaStack and AsyncSandbox are
the same for asyncio, with the same names. The key and the server's address come
from the arguments, the environment (PANDASTACK_API_KEY or PANDASTACK_TOKEN,
PANDASTACK_API) or ~/.config/pandastack/config.json, in that order.

Importing this package loads next to nothing: each name is loaded when it is
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from ._async.client import AsyncPandaStack as AsyncPandaStack
    from ._async.filesystem import AsyncFilesystem as AsyncFilesystem
    from ._async.process import AsyncProcess as AsyncProcess
    from ._async.sandbox import AsyncForkTree as AsyncForkTree
    from ._async.sandbox import AsyncSandbox as AsyncSandbox
    from ._async.stream import AsyncExecStream as AsyncExecStream
    from ._async.stream import AsyncStream as AsyncStream
    from ._generated.models import CheckpointPolicy as CheckpointPolicy
    from ._generated.models import Event as Event
    from ._generated.models import ExecResult as ExecResult
    from ._generated.models import FileInfo as FileInfo
    from ._generated.models import Health as Health
    from ._generated.models import IdlePolicy as IdlePolicy
    from ._generated.models import Lifecycle as Lifecycle
    from ._generated.models import LogLine as LogLine
    from ._generated.models import Me as Me
    from ._generated.models import Metrics as Metrics
    from ._generated.models import NewToken as NewToken
    from ._generated.models import Promoted as Promoted
    from ._generated.models import SandboxRecord as SandboxRecord
    from ._generated.models import Snapshot as Snapshot
    from ._generated.models import Step as Step
    from ._generated.models import Template as Template
    from ._generated.models import Timeline as Timeline
    from ._generated.models import Token as Token
    from ._generated.models import Tree as Tree
    from ._generated.models import TreeNode as TreeNode
    from ._generated.models import Version as Version
    from ._generated.models import VolumeMount as VolumeMount
    from ._output import Output as Output
    from ._sync.client import PandaStack as PandaStack
    from ._sync.filesystem import Filesystem as Filesystem
    from ._sync.process import Process as Process
    from ._sync.sandbox import ForkTree as ForkTree
    from ._sync.sandbox import Sandbox as Sandbox
    from ._sync.stream import ExecStream as ExecStream
    from ._sync.stream import Stream as Stream
    from .errors import APIConnectionError as APIConnectionError
    from .errors import AuthError as AuthError
    from .errors import BadRequestError as BadRequestError
    from .errors import CapacityError as CapacityError
    from .errors import ConflictError as ConflictError
    from .errors import NotFoundError as NotFoundError
    from .errors import PandastackError as PandastackError
    from .errors import QuotaError as QuotaError
    from .errors import ServerError as ServerError
    from .errors import TimeoutError as TimeoutError

    AsyncClient = AsyncPandaStack
    Client = PandaStack

_MODULES = {
    "_async.client": "AsyncPandaStack AsyncClient",
    "_async.filesystem": "AsyncFilesystem",
    "_async.process": "AsyncProcess",
    "_async.sandbox": "AsyncForkTree AsyncSandbox",
    "_async.stream": "AsyncExecStream AsyncStream",
    "_generated.models": "CheckpointPolicy Event ExecResult FileInfo Health IdlePolicy Lifecycle LogLine Me Metrics"
    " NewToken Promoted SandboxRecord Snapshot Step Template Timeline Token Tree TreeNode Version VolumeMount",
    "_output": "Output",
    "_sync.client": "Client PandaStack",
    "_sync.filesystem": "Filesystem",
    "_sync.process": "Process",
    "_sync.sandbox": "ForkTree Sandbox",
    "_sync.stream": "ExecStream Stream",
    "errors": "APIConnectionError AuthError BadRequestError CapacityError ConflictError NotFoundError PandastackError"
    " QuotaError ServerError TimeoutError",
}
_ALIASES = {"Client": "PandaStack", "AsyncClient": "AsyncPandaStack"}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), _ALIASES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
