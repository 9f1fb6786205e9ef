from pandastack import PandaStack

client = PandaStack()  # reads PANDASTACK_API_KEY from the environment

# Spin up an isolated Firecracker microVM (p50 ~179ms via snapshot-restore)
sandbox = client.sandboxes.create(
    template="code-interpreter",
    ttl_seconds=300,
    metadata={"task": "run-agent-snippet"},
)

# Execute code the agent generated — confined to this VM's own kernel
result = sandbox.exec(
    "python -c 'import sys; print(sys.version)'",
    timeout_seconds=30,
)
print(result.stdout, result.exit_code)

# Branch the running state with copy-on-write (~400-750ms same-host)
branch = sandbox.fork()
branch.exec("echo exploring an alternate path")

# Persist a file, then snapshot the whole VM for later restore
sandbox.filesystem.write("/work/out.txt", "hello from inside the microVM")
sandbox.snapshot()
