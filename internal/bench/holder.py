# A process that holds memory, for the benchmark: idle until SIGUSR1, which
# changes every page of what it holds. With "watch" it also looks at the clock
# all the time, and says when it stood still for more than 2 ms.
import os, signal, sys, time

size = int(sys.argv[1]) << 20
memory = bytearray(size)
ready = sys.argv[2]

def change(*_):
    for at in range(0, size, 1 << 20):
        memory[at:at + (1 << 20)] = os.urandom(1 << 20)
    open(ready, "w").close()

signal.signal(signal.SIGUSR1, change)
change()
while "watch" not in sys.argv:
    signal.pause()
last = time.monotonic()
while True:
    time.sleep(0.0005)
    now = time.monotonic()
    if now - last > 0.002:
        print((now - last) * 1000, flush=True)
        now = time.monotonic()
    last = now
