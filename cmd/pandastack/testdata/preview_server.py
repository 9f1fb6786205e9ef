# A small web server for tests of previews: bytes both ways, events and a
# WebSocket, with the standard library alone.
import base64, hashlib, http.server, socket, struct, sys, threading

step = threading.Semaphore(0)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo()
        if self.path == "/events":
            return self.events()
        if self.path == "/next":
            step.release()
        if self.path.startswith("/zeros/"):
            return self.zeros(int(self.path[len("/zeros/") :]))
        self.answer("%s %s %s" % (self.path, self.headers.get("Host"), self.headers.get("X-Forwarded-For")))

    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left > 0:
            part = self.rfile.read(min(left, 1 << 16))
            left -= len(part)
            digest.update(part)
        self.answer(digest.hexdigest())

    def zeros(self, n):
        self.send_response(200)
        self.send_header("Content-Length", str(n))
        self.end_headers()
        while n > 0:
            part = bytes(min(n, 1 << 16))
            self.wfile.write(part)
            n -= len(part)

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(3):
            self.wfile.write(b"data: %d\n\n" % i)
            self.wfile.flush()
            step.acquire()
        self.close_connection = True

    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            length = struct.pack(">BH", 126, size) if size > 125 else bytes([size])
            self.wfile.write(bytes([head[0]]) + length + data)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET


Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
