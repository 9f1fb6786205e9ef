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
    from ._async.code import AsyncCodeStream as AsyncCodeStream
    from ._async.code import AsyncContexts as AsyncContexts
    from ._async.file import AsyncFile as AsyncFile
    from ._async.filesystem import AsyncFilesystem as AsyncFilesystem
    from ._async.git import AsyncGit as AsyncGit
    from ._async.lsp import AsyncLanguageServer as AsyncLanguageServer
    from ._async.network import AsyncNetworks as AsyncNetworks
    from ._async.network import AsyncPorts as AsyncPorts
    from ._async.network import AsyncSandboxNetwork as AsyncSandboxNetwork
    from ._async.process import AsyncProcess as AsyncProcess
    from ._async.processes import AsyncProcesses as AsyncProcesses
    from ._async.sandbox import AsyncForkTree as AsyncForkTree
    from ._async.sandbox import AsyncSandbox as AsyncSandbox
    from ._async.stream import AsyncExecStream as AsyncExecStream
    from ._async.stream import AsyncStream as AsyncStream
    from ._async.terminal import AsyncTerminal as AsyncTerminal
    from ._generated.models import CheckpointPolicy as CheckpointPolicy
    from ._generated.models import CodeContext as CodeContext
    from ._generated.models import CodeError as CodeError
    from ._generated.models import CodeEvent as CodeEvent
    from ._generated.models import CodeOutput as CodeOutput
    from ._generated.models import CodeRun as CodeRun
    from ._generated.models import Connection as Connection
    from ._generated.models import ConnectionLog as ConnectionLog
    from ._generated.models import Event as Event
    from ._generated.models import ExecResult as ExecResult
    from ._generated.models import Extracted as Extracted
    from ._generated.models import FileEvent as FileEvent
    from ._generated.models import FileInfo as FileInfo
    from ._generated.models import GitAuth as GitAuth
    from ._generated.models import GitBranch as GitBranch
    from ._generated.models import GitCommit as GitCommit
    from ._generated.models import GitFile as GitFile
    from ._generated.models import GitPatch as GitPatch
    from ._generated.models import GitStatus as GitStatus
    from ._generated.models import GlobResult as GlobResult
    from ._generated.models import Health as Health
    from ._generated.models import IdlePolicy as IdlePolicy
    from ._generated.models import LSPLanguage as LSPLanguage
    from ._generated.models import LSPServer as LSPServer
    from ._generated.models import Lifecycle as Lifecycle
    from ._generated.models import LogLine as LogLine
    from ._generated.models import Me as Me
    from ._generated.models import Metrics as Metrics
    from ._generated.models import MetricsSample as MetricsSample
    from ._generated.models import MetricsSeries as MetricsSeries
    from ._generated.models import Network as Network
    from ._generated.models import NetworkGroup as NetworkGroup
    from ._generated.models import NetworkMember as NetworkMember
    from ._generated.models import NewToken as NewToken
    from ._generated.models import Port as Port
    from ._generated.models import PreviewURL as PreviewURL
    from ._generated.models import ProcessInfo as ProcessInfo
    from ._generated.models import Promoted as Promoted
    from ._generated.models import ReplaceResult as ReplaceResult
    from ._generated.models import ReplacedFile as ReplacedFile
    from ._generated.models import SSHInfo as SSHInfo
    from ._generated.models import SSHKey as SSHKey
    from ._generated.models import SandboxRecord as SandboxRecord
    from ._generated.models import SearchMatch as SearchMatch
    from ._generated.models import SearchResult as SearchResult
    from ._generated.models import SignedFile as SignedFile
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
    from ._sync.code import CodeStream as CodeStream
    from ._sync.code import Contexts as Contexts
    from ._sync.file import File as File
    from ._sync.filesystem import Filesystem as Filesystem
    from ._sync.git import Git as Git
    from ._sync.lsp import LanguageServer as LanguageServer
    from ._sync.network import Networks as Networks
    from ._sync.network import Ports as Ports
    from ._sync.network import SandboxNetwork as SandboxNetwork
    from ._sync.process import Process as Process
    from ._sync.processes import Processes as Processes
    from ._sync.sandbox import ForkTree as ForkTree
    from ._sync.sandbox import Sandbox as Sandbox
    from ._sync.stream import ExecStream as ExecStream
    from ._sync.stream import Stream as Stream
    from ._sync.terminal import Terminal as Terminal
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
    "_async.client": "AsyncClient AsyncPandaStack",
    "_async.code": "AsyncCodeStream AsyncContexts",
    "_async.file": "AsyncFile",
    "_async.filesystem": "AsyncFilesystem",
    "_async.git": "AsyncGit",
    "_async.lsp": "AsyncLanguageServer",
    "_async.network": "AsyncNetworks AsyncPorts AsyncSandboxNetwork",
    "_async.process": "AsyncProcess",
    "_async.processes": "AsyncProcesses",
    "_async.sandbox": "AsyncForkTree AsyncSandbox",
    "_async.stream": "AsyncExecStream AsyncStream",
    "_async.terminal": "AsyncTerminal",
    "_generated.models": "CheckpointPolicy CodeContext CodeError CodeEvent CodeOutput CodeRun Connection ConnectionLog Event"
    " ExecResult Extracted FileEvent FileInfo GitAuth GitBranch GitCommit GitFile GitPatch GitStatus"
    " GlobResult Health IdlePolicy LSPLanguage LSPServer Lifecycle LogLine Me Metrics MetricsSample"
    " MetricsSeries Network NetworkGroup NetworkMember NewToken Port PreviewURL ProcessInfo Promoted"
    " ReplaceResult ReplacedFile SSHInfo SSHKey SandboxRecord SearchMatch SearchResult SignedFile Snapshot"
    " Step Template Timeline Token Tree TreeNode Version VolumeMount",
    "_output": "Output",
    "_sync.client": "Client PandaStack",
    "_sync.code": "CodeStream Contexts",
    "_sync.file": "File",
    "_sync.filesystem": "Filesystem",
    "_sync.git": "Git",
    "_sync.lsp": "LanguageServer",
    "_sync.network": "Networks Ports SandboxNetwork",
    "_sync.process": "Process",
    "_sync.processes": "Processes",
    "_sync.sandbox": "ForkTree Sandbox",
    "_sync.stream": "ExecStream Stream",
    "_sync.terminal": "Terminal",
    "errors": "APIConnectionError AuthError BadRequestError CapacityError ConflictError NotFoundError"
    " PandastackError QuotaError ServerError TimeoutError",
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
