"""Tries things on the network and prints what came of each, as JSON.

The argument is a JSON list of probes, each a list of a kind and its arguments.
They run at the same time.
"""

import json, random, socket, ssl, struct, sys, threading, time

WAIT = 6


def connect(host, port, wait=WAIT):
    return socket.create_connection((host, int(port)), timeout=wait)


def read_all(s):
    data = b""
    while len(data) < 65536:
        part = s.recv(65536)
        if not part:
            break
        data += part
    return data


def get(s, host):
    s.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = read_all(s).partition(b"\r\n\r\n")
    return body.decode().strip() if head else "closed"


def tcp(host, port):
    with connect(host, port) as s:
        s.sendall(b"ping\n")
        return s.recv(16).decode().strip() or "closed"


def http(address, port, host):
    with connect(address, port) as s:
        return get(s, host)


def tls(address, port, name, host=None):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connect(address, port) as raw, context.wrap_socket(raw, server_hostname=name or None) as s:
        return get(s, host or name or address)


def udp(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        s.connect((host, int(port)))
        s.send(b"ping")
        return s.recv(16).decode()


def name(which):
    return socket.gethostbyname(which)


def query(which):
    labels = b"".join(bytes([len(p)]) + p.encode() for p in which.split("."))
    return struct.pack(">HHHHHH", random.randrange(65536), 0x100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"


def dns(server, which):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.connect((server, 53))
        s.send(query(which))
        return answer(s.recv(512))


def dns_tcp(server, which, port=53):
    with connect(server, port) as s:
        q = query(which)
        s.sendall(struct.pack(">H", len(q)) + q)
        got = s.recv(1024)
        return answer(got[2:]) if got else "closed"


def answer(a):
    if a[3] & 15:
        return f"rcode {a[3] & 15}"
    return ".".join(map(str, a[-4:])) if struct.unpack(">H", a[6:8])[0] else "empty"


def send(host, port, megabytes):
    """How long megabytes take to be sent and acknowledged, in seconds."""
    with connect(host, port, 60) as s:
        began = time.time()
        for _ in range(int(megabytes)):
            s.sendall(b"x" * 1000000)
        s.shutdown(socket.SHUT_WR)
        s.recv(16)
        return time.time() - began


def run(probe, out, i):
    try:
        out[i] = globals()[probe[0]](*probe[1:])
    except socket.timeout:
        out[i] = "timeout"
    except (ConnectionRefusedError, PermissionError):
        out[i] = "refused"
    except ConnectionResetError:
        out[i] = "closed"
    except OSError as e:
        out[i] = "error " + str(e)


probes = json.loads(sys.argv[1])
out = [None] * len(probes)
threads = [threading.Thread(target=run, args=(p, out, i)) for i, p in enumerate(probes)]
[t.start() for t in threads]
[t.join() for t in threads]
print(json.dumps(out))
