import os
from pandastack import PandaStack
client = PandaStack(token=os.environ["PANDASTACK_TOKEN"]) # base URL configurable
# Create a sandbox from a template (179ms p50 via snapshot-restore)
sandbox = client.sandboxes.create(
template="code-interpreter",
ttl_seconds=600,
metadata={"task": "data-analysis"},
)
# Run code inside the microVM
result = sandbox.exec("python -c 'print(2 ** 10)'", timeout_seconds=30)
print(result.stdout) # -> 1024
# Read and write files
sandbox.filesystem.write("/tmp/notes.txt", "hello from inside the VM")
print(sandbox.filesystem.read("/tmp/notes.txt"))
# Fork into N parallel branches from the same warmed state (~400ms same-host)
branch = sandbox.fork()
