# Made by tools/generate.py from docs/errors.md. Do not edit.

"""The catalogue of errors: the class, status, whether trying again can help, and advice of each code."""

from __future__ import annotations

from typing import Dict, Tuple

CATALOGUE: Dict[str, Tuple[str, int, bool, str]] = {
    "internal": (
        "ServerError", 500, True,
        "This is a fault of the server. Its log has the cause under the request id.",
    ),
    "request.invalid": (
        "BadRequestError", 400, False,
        "Correct the field named in the message; /openapi.json has the schema.",
    ),
    "request.unknown_field": (
        "BadRequestError", 400, False,
        "Remove or correct the field; /openapi.json lists the fields that exist.",
    ),
    "request.too_large": (
        "BadRequestError", 413, False,
        "Send less; files of any size go through the fs endpoint as a stream.",
    ),
    "request.not_found": (
        "NotFoundError", 404, False,
        "Check the path; /openapi.json lists every endpoint.",
    ),
    "request.method_not_allowed": (
        "BadRequestError", 405, False,
        "Use a method that this path has; /openapi.json lists them.",
    ),
    "request.canceled": (
        "APIConnectionError", 499, True,
        "The client closed the connection before the answer was ready.",
    ),
    "request.timeout": (
        "TimeoutError", 504, True,
        "Allow more time (timeout_seconds), or run the command in the background.",
    ),
    "request.unsupported": (
        "BadRequestError", 501, False,
        "This host or driver cannot do it; `pandastack doctor` shows what it can.",
    ),
    "request.key_reused": (
        "ConflictError", 409, False,
        "Use a new Idempotency-Key for every new request; repeat one only with the same body.",
    ),
    "auth.invalid_token": (
        "AuthError", 401, False,
        "Send `Authorization: Bearer pds_...`; the first key is in admin.key of the server's data directory.",
    ),
    "auth.token_revoked": (
        "AuthError", 401, False,
        "The key was revoked; create another with `pandastack token create`.",
    ),
    "auth.forbidden": (
        "AuthError", 403, False,
        "The key is valid but may not do this; use an admin key.",
    ),
    "auth.workspace_mismatch": (
        "AuthError", 403, False,
        "The key belongs to another workspace.",
    ),
    "token.not_found": (
        "NotFoundError", 404, False,
        "List the keys with `pandastack token list`.",
    ),
    "sandbox.not_found": (
        "NotFoundError", 404, False,
        "It was deleted, its time to live ran out, or it belongs to another key; list with `pandastack sandbox list`.",
    ),
    "sandbox.invalid_state": (
        "ConflictError", 409, False,
        "Look at the sandbox's status first (`pandastack sandbox get`).",
    ),
    "sandbox.exists": (
        "ConflictError", 409, False,
        "Choose another id or use the sandbox that exists.",
    ),
    "sandbox.died": (
        "ConflictError", 409, False,
        "The sandbox stopped by itself; its logs and events say why (a common cause is its memory limit).",
    ),
    "sandbox.boot_failed": (
        "ServerError", 500, True,
        "The sandbox did not start; the server's log has the console output under the sandbox id.",
    ),
    "template.not_found": (
        "NotFoundError", 404, False,
        "List the templates with `pandastack template list`.",
    ),
    "template.build_failed": (
        "ServerError", 500, False,
        "The log of the build says which step failed.",
    ),
    "template.invalid": (
        "BadRequestError", 400, False,
        "A template is a directory or tar of a root filesystem, or a recipe; see docs/templates.md.",
    ),
    "file.not_found": (
        "NotFoundError", 404, False,
        "Check the path; relative paths start in the user's home directory.",
    ),
    "file.exists": (
        "ConflictError", 409, False,
        "Remove it first or choose another path.",
    ),
    "file.is_directory": (
        "BadRequestError", 400, False,
        "The path is a directory; use the directory endpoint.",
    ),
    "file.not_directory": (
        "BadRequestError", 400, False,
        "The path is not a directory.",
    ),
    "file.permission_denied": (
        "BadRequestError", 403, False,
        "The sandbox's own file permissions refuse this; run as root or change the mode.",
    ),
    "file.invalid_path": (
        "BadRequestError", 400, False,
        "A path may not be empty or contain NUL bytes.",
    ),
    "file.no_space": (
        "CapacityError", 507, False,
        "The sandbox's disk is full; delete files or create it with a larger disk_mb.",
    ),
    "process.not_found": (
        "NotFoundError", 404, False,
        "The process has ended or was never started here.",
    ),
    "process.invalid": (
        "BadRequestError", 400, False,
        "Check the command, the working directory and the user.",
    ),
    "context.not_found": (
        "NotFoundError", 404, False,
        "The code context was deleted, or the id is of another sandbox; list with GET /v1/sandboxes/{id}/contexts.",
    ),
    "git.auth_failed": (
        "AuthError", 403, False,
        "The remote refused the name and password, or none were given; send auth with a valid token.",
    ),
    "git.not_found": (
        "NotFoundError", 404, False,
        "Check the names of repository, branch, commit and file.",
    ),
    "git.not_a_repository": (
        "NotFoundError", 404, False,
        "Name the directory of a repository in path, or clone one first.",
    ),
    "git.conflict": (
        "ConflictError", 409, False,
        "Git's own message says what stands in the way: commit or stash changes, resolve conflicts, or pull first.",
    ),
    "git.nothing_to_commit": (
        "ConflictError", 409, False,
        "Stage changes first (add), or set all; allow_empty makes a commit without any.",
    ),
    "git.remote_unreachable": (
        "ServerError", 502, True,
        "The remote does not answer from inside the sandbox; check its address and the sandbox's network.",
    ),
    "git.failed": (
        "BadRequestError", 400, False,
        "Git's own message says why.",
    ),
    "mcp.session_not_found": (
        "NotFoundError", 404, False,
        "It ended or was begun with another key; begin a new one by sending initialize without a session id.",
    ),
    "lsp.unknown_language": (
        "NotFoundError", 404, False,
        "GET /v1/lsp/languages lists the languages.",
    ),
    "lsp.not_installed": (
        "ConflictError", 409, False,
        "Install a language server in the sandbox or its template; GET /v1/lsp/languages says which ones are known and how.",
    ),
    "driver.unavailable": (
        "BadRequestError", 400, False,
        "`pandastack doctor` says which drivers this host has, and why not the others.",
    ),
    "preview.unreachable": (
        "ServerError", 502, True,
        "Start a server on this port inside the sandbox; it must listen on 0.0.0.0 or ::, not on 127.0.0.1 alone.",
    ),
    "snapshot.incompatible": (
        "ConflictError", 409, False,
        "The snapshot was made by another runtime build, CPU or kernel; start it on a host like the one it was made on, or use a snapshot without memory, which starts anywhere.",
    ),
    "snapshot.corrupt": (
        "ServerError", 500, False,
        "The bytes do not match their checksum; delete the snapshot and make it again.",
    ),
    "snapshot.not_found": (
        "NotFoundError", 404, False,
        "It was deleted, or it belongs to another key; list with `pandastack snapshot list`.",
    ),
    "snapshot.exists": (
        "ConflictError", 409, False,
        "Choose another name, or delete the snapshot that has it.",
    ),
    "snapshot.in_use": (
        "ConflictError", 409, True,
        "Something is being made from it; try again when that is done.",
    ),
    "snapshot.store_unavailable": (
        "ServerError", 503, True,
        "The blob store does not answer; what was stored before is unharmed.",
    ),
    "snapshot.store_full": (
        "CapacityError", 507, False,
        "Free space in the blob store or on the host's disk, or delete snapshots; nothing that was stored before is harmed.",
    ),
    "ssh_key.not_found": (
        "NotFoundError", 404, False,
        "List the keys with `pandastack ssh-key list`.",
    ),
    "quota.ssh_keys_exceeded": (
        "QuotaError", 429, False,
        "Delete SSH keys that are not needed (`pandastack ssh-key delete`).",
    ),
    "quota.sandboxes_exceeded": (
        "QuotaError", 429, False,
        "Delete sandboxes that are not needed or raise the quota.",
    ),
    "quota.vcpu_exceeded": (
        "QuotaError", 429, False,
        "Ask for fewer CPUs or raise the quota.",
    ),
    "quota.networks_exceeded": (
        "QuotaError", 429, False,
        "Delete networks that are not needed or raise the quota.",
    ),
    "network.not_found": (
        "NotFoundError", 404, False,
        "Make it first with `pandastack network create`; `pandastack network list` shows those there are.",
    ),
    "network.exists": (
        "ConflictError", 409, False,
        "Use the network that exists, or choose another name.",
    ),
    "network.in_use": (
        "ConflictError", 409, False,
        "Delete its members, or let them leave it (`pandastack sandbox network set`), first.",
    ),
    "network.name_taken": (
        "ConflictError", 409, False,
        "Choose another network.name, or leave it out: a member is always <id>.internal.",
    ),
    "capacity.unavailable": (
        "CapacityError", 503, True,
        "No host has room now; try again or add a host.",
    ),
    "host.unreachable": (
        "CapacityError", 503, True,
        "The host that runs this sandbox does not answer.",
    ),
    "host.setup_incomplete": (
        "ServerError", 503, False,
        "Something this needs is not installed; `pandastack doctor` says what and how to install it.",
    ),
    "server.data_dir_locked": (
        "ServerError", 409, False,
        "Another server uses this data directory; stop it or give this one another --data-dir.",
    ),
    "server.store_unavailable": (
        "ServerError", 503, True,
        "The database does not answer.",
    ),
    "server.store_corrupt": (
        "ServerError", 500, False,
        "The database file is damaged; restore it from a backup or move it away to start empty. Nothing was changed.",
    ),
    "server.port_in_use": (
        "ServerError", 409, False,
        "Another program listens there; choose another --listen.",
    ),
    "client.server_unreachable": (
        "APIConnectionError", 502, True,
        "Is the server running, and is PANDASTACK_API right? Start one with `pandastack server`.",
    ),
    "client.not_a_pandastack_server": (
        "APIConnectionError", 502, False,
        "Something else answers at this address; check PANDASTACK_API.",
    ),
    "rate_limit.api": (
        "QuotaError", 429, True,
        "Wait for the time in Retry-After.",
    ),
    "host.not_root": (
        "ServerError", 403, False,
        "Run it as root (sudo): namespaces, mounts and cgroups need it. Sandboxed code never runs as root of the host.",
    ),
    "host.kernel_feature_missing": (
        "ServerError", 501, False,
        "`pandastack doctor` lists what the kernel must offer.",
    ),
    "host.network_unavailable": (
        "ServerError", 503, False,
        "The host cannot make sandbox networks; `pandastack doctor` says why.",
    ),
}

FAMILY_BY_STATUS: Dict[int, str] = {
    401: "AuthError",
    403: "AuthError",
    404: "NotFoundError",
    409: "ConflictError",
    429: "QuotaError",
    501: "BadRequestError",
    504: "TimeoutError",
    507: "CapacityError",
}
