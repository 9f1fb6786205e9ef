# A git server over HTTP with basic authentication, on loopback: git's own CGI
# program behind it. Usage: gitserver.py PORT ROOT HASH, where HASH is the SHA-256
# of name:password, so that the secret itself is nowhere in the sandbox. Each
# answer waits a moment, so that there is time to look around meanwhile.
import base64, hashlib, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, root, want = int(sys.argv[1]), sys.argv[2], sys.argv[3]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def serve(self):
        kind, _, code = self.headers.get("Authorization", "").partition(" ")
        given = hashlib.sha256(base64.b64decode(code) if kind == "Basic" else b"").hexdigest()
        if given != want:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        time.sleep(1)
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while n := int(self.rfile.readline(), 16):
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        env = {**os.environ, "GIT_PROJECT_ROOT": root, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
               "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "tester",
               "CONTENT_LENGTH": str(len(body)), "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", "")}
        out = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE).stdout
        head, _, rest = out.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200 OK").split()[0]))
        for key, value in fields.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)

    do_GET = do_POST = serve


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
