# A program with state in memory, for the tests of snapshots. It answers on port
# 8000:
#   /add      remember 1 KiB of random bytes
#   /sum      digest of all that it remembers, and of how much that is
#   /random   values that no two machines may share, as JSON
# At SIGUSR1 it renews the generators whose state a snapshot copies.
import hashlib, http.server, json, os, random, signal, ssl, uuid

kept = []
renewals = 0


def renew(*_):
    global renewals
    renewals += 1
    random.seed()
    ssl.RAND_add(os.urandom(32), 32.0)


def client_hello():
    """Random value and session id of the first message of a TLS connection."""
    out = ssl.MemoryBIO()
    conn = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="example.com")
    try:
        conn.do_handshake()
    except ssl.SSLWantReadError:
        pass
    message = out.read()
    return message[11:43].hex(), message[44:76].hex()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ""
        if self.path == "/add":
            kept.append(os.urandom(1024))
        if self.path in ("/add", "/sum"):
            body = "%d %s" % (len(kept), hashlib.sha256(b"".join(kept)).hexdigest())
        if self.path == "/random":
            hello, session = client_hello()
            body = json.dumps({
                "urandom": os.urandom(16).hex(), "uuid4": str(uuid.uuid4()), "random": random.getrandbits(128),
                "openssl": ssl.RAND_bytes(16).hex(), "tls_random": hello, "tls_session": session, "renewals": renewals,
            })
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode() + b"\n")

    def log_message(self, *_):
        pass


signal.signal(signal.SIGUSR1, renew)
random.random()
ssl.RAND_bytes(16)
open("/workspace/model.pid", "w").write(str(os.getpid()))
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
