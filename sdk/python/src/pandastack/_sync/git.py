# Made by tools/unasync.py from _async/git.py. Do not edit.

"""Git in a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Mapping, Sequence, TypeVar, Union

from .. import _check, _core
from .._core import Request
from .._generated.models import GitBranch, GitBranches, GitCommit, GitLog, GitPatch, GitStatus

if TYPE_CHECKING:
    from .._generated.models import GitAuth
    from .transport import Transport

    Auth = Union[GitAuth, Mapping[str, str], str]

T = TypeVar("T")
LOCAL_TIMEOUT = 60.0  # seconds that the server allows git, unless told otherwise
REMOTE_TIMEOUT = 600.0  # what talks to a remote


class Git:
    """The git repositories of a sandbox. It is the git in the sandbox that runs.

    path is the directory of a repository, default the sandbox's working
    directory; user is who git runs as, whose rights are all it has;
    timeout_seconds is how long it may take, default 60 and 600 for what talks
    to a remote. auth is a token, or GitAuth(password, username, host) or such a
    mapping, for a remote over HTTP: it is never on the sandbox's disk.

    Raises NotFoundError (git.not_found, git.not_a_repository), AuthError
    (git.auth_failed), ConflictError (git.conflict, git.nothing_to_commit),
    ServerError (git.remote_unreachable) and BadRequestError (git.failed).
    """

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._base = ("v1", "sandboxes", sandbox_id, "git")

    def clone(
        self,
        url: str,
        path: str | None = None,
        *,
        branch: str | None = None,
        depth: int | None = None,
        auth: Auth | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitStatus:
        """Makes a repository of a remote one.

        url: without a password. path: the directory to make; default as git
        does. branch: the branch or tag to check out. depth: only so many of
        the latest commits.
        """
        body = _where(path, user, timeout_seconds, auth, url=_check.text("url", url, empty=False), branch=_name("branch", branch))
        if depth is not None:
            body["depth"] = _check.whole("depth", depth)
        return self._call("clone", body, GitStatus.from_dict, remote=True)

    def status(
        self, path: str | None = None, *, user: str | None = None, timeout_seconds: float | None = None
    ) -> GitStatus:
        """Says how a repository stands."""
        return self._call("status", _where(path, user, timeout_seconds), GitStatus.from_dict)

    def diff(
        self,
        path: str | None = None,
        *,
        staged: bool = False,
        base: str | None = None,
        to: str | None = None,
        paths: Sequence[str] | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitPatch:
        """Gives changes as a patch: those that are not staged, with staged those that are.

        base: compare with this commit or branch; to: compare base with that
        commit instead of with the files. paths: only these.
        """
        body = _where(path, user, timeout_seconds, staged=_check.truth("staged", staged))
        body.update(_given(**{"from": _name("base", base)}, to=_name("to", to), paths=_names("paths", paths)))
        return self._call("diff", body, GitPatch.from_dict)

    def add(
        self,
        paths: Sequence[str] | None = None,
        *,
        path: str | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitStatus:
        """Stages changes: of paths, which are relative to the repository, or all."""
        body = _where(path, user, timeout_seconds, paths=_names("paths", paths))
        return self._call("add", body, GitStatus.from_dict)

    def commit(
        self,
        message: str,
        *,
        path: str | None = None,
        all: bool = False,
        allow_empty: bool = False,
        author_name: str | None = None,
        author_email: str | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitCommit:
        """Commits what is staged.

        all: stage changes of files that are tracked first. author_name,
        author_email: default those of git's configuration.
        """
        body = _where(
            path,
            user,
            timeout_seconds,
            message=_check.text("message", message, empty=False),
            all=_check.truth("all", all),
            allow_empty=_check.truth("allow_empty", allow_empty),
            author_name=_name("author_name", author_name),
            author_email=_name("author_email", author_email),
        )
        return self._call("commit", body, GitCommit.from_dict)

    def branches(
        self, path: str | None = None, *, user: str | None = None, timeout_seconds: float | None = None
    ) -> List[GitBranch]:
        """Gives the branches, those of remotes as they were last seen."""
        return self._branches(_where(path, user, timeout_seconds))

    def create_branch(
        self,
        name: str,
        *,
        path: str | None = None,
        start: str | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> List[GitBranch]:
        """Makes a branch, at the current commit or at start, and gives all branches."""
        create = _check.text("name", name, empty=False)
        body = _where(path, user, timeout_seconds, create=create, **{"from": _name("start", start)})
        return self._branches(body)

    def delete_branch(
        self,
        name: str,
        *,
        path: str | None = None,
        force: bool = False,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> List[GitBranch]:
        """Deletes a branch, with force also one that is not merged, and gives the others."""
        delete = _check.text("name", name, empty=False)
        body = _where(path, user, timeout_seconds, delete=delete, force=_check.truth("force", force))
        return self._branches(body)

    def checkout(
        self,
        ref: str,
        *,
        path: str | None = None,
        create: bool = False,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitStatus:
        """Changes to a branch, tag or commit; with create to a branch that it makes first."""
        ref = _check.text("ref", ref, empty=False)
        body = _where(path, user, timeout_seconds, ref=ref, create=_check.truth("create", create))
        return self._call("checkout", body, GitStatus.from_dict)

    def pull(
        self,
        path: str | None = None,
        *,
        remote: str | None = None,
        branch: str | None = None,
        rebase: bool = False,
        auth: Auth | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitStatus:
        """Fetches from a remote (default origin) and merges, or with rebase puts local commits on top."""
        body = _where(path, user, timeout_seconds, auth, remote=_name("remote", remote), branch=_name("branch", branch))
        body["rebase"] = _check.truth("rebase", rebase)
        return self._call("pull", body, GitStatus.from_dict, remote=True)

    def push(
        self,
        path: str | None = None,
        *,
        remote: str | None = None,
        branch: str | None = None,
        force: bool = False,
        set_upstream: bool = False,
        auth: Auth | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> GitStatus:
        """Sends commits to a remote (default origin).

        force: replace the remote's branch, unless somebody else has changed it.
        set_upstream: remember the branch for later pulls.
        """
        body = _where(path, user, timeout_seconds, auth, remote=_name("remote", remote), branch=_name("branch", branch))
        body.update(force=_check.truth("force", force), set_upstream=_check.truth("set_upstream", set_upstream))
        return self._call("push", body, GitStatus.from_dict, remote=True)

    def log(
        self,
        path: str | None = None,
        *,
        ref: str | None = None,
        limit: int | None = None,
        skip: int | None = None,
        paths: Sequence[str] | None = None,
        user: str | None = None,
        timeout_seconds: float | None = None,
    ) -> List[GitCommit]:
        """Gives commits, newest first.

        ref: where to start. limit: at most so many, default 50. skip: leave out
        so many. paths: only commits that changed these.
        """
        body = _where(path, user, timeout_seconds, ref=_name("ref", ref), paths=_names("paths", paths))
        if limit is not None:
            body["limit"] = _check.whole("limit", limit, low=1)
        if skip is not None:
            body["skip"] = _check.whole("skip", skip)
        return (self._call("log", body, GitLog.from_dict)).commits

    def _branches(self, body: dict[str, Any]) -> List[GitBranch]:
        return (self._call("branch", body, GitBranches.from_dict)).branches

    def _call(self, name: str, body: dict[str, Any], read: Callable[[Any], T], *, remote: bool = False) -> T:
        allowed: float = body.get("timeout_seconds") or (REMOTE_TIMEOUT if remote else LOCAL_TIMEOUT)
        request = Request("POST", (*self._base, name), json=body, timeout=allowed + self._transport.settings.timeout)
        return self._transport.call(request, read)


def _where(path: object, user: object, timeout_seconds: object, auth: object = None, **more: Any) -> dict[str, Any]:
    """The body of a request: what every one may have, and more."""
    body = _given(path=None if path is None else _check.path("path", path), user=_name("user", user), **more)
    if timeout_seconds is not None:
        body["timeout_seconds"] = _check.number("timeout_seconds", timeout_seconds, above=True)
    if auth is not None:
        body["auth"] = {"password": auth} if isinstance(auth, str) else _check.policy("auth", auth)
    return body


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _name(name: str, value: object) -> str | None:
    return None if value is None else _check.text(name, value, empty=False)


def _names(name: str, value: object) -> List[str] | None:
    return None if value is None else _check.words(name, value)
