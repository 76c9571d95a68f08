#!/usr/bin/env python3
"""A web server for test_fetch.c, on 127.0.0.1 alone. usage: fetch_server.py FOLDER

Makes small archives in FOLDER, prints its port, and serves the folder's files in several manners:
/ok/NAME          as they are, with ranges       /norange/NAME    always the whole
/cut/NAME         half of it, then the end       /stall/NAME      half of it, then silence
/wrong/NAME       its last byte changed          /moved/NAME      a redirect to /ok/NAME
/elsewhere/NAME   a redirect to FTP              /round/NAME      a redirect to itself
Each request is a line of FOLDER/log: the path and the Range asked for.
"""
import http.server, io, os, sys, tarfile, time

folder = sys.argv[1]


def archive(name, members):
    with tarfile.open(f"{folder}/{name}", "w:gz") as tar:
        for path, content in members:
            entry = tarfile.TarInfo(path)
            if content is None:
                entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))


big, text = bytes(range(256)) * 400, b"a\nb\n"
good = [("set/readme.html", b"hello"), ("set/big.bin", big), ("set/names.txt", text)]
archive("good.tar.gz", good)
strays = ["../escaped", "set/../../escaped", os.path.abspath(f"{folder}/../absolute"), "other/big.bin"]
archive("evil.tar.gz", [(path, b"x") for path in strays] + good)
archive("link.tar.gz", [("set/big.bin", None), ("set/names.txt", text)])
archive("lacking.tar.gz", good[:2])
archive("other_size.tar.gz", [("set/big.bin", big[1:]), ("set/names.txt", text)])
archive("long_text.tar.gz", [("set/big.bin", big), ("set/names.txt", b"x" * 70000)])
open(f"{folder}/not.tar.gz", "wb").write(b"This is no archive. " * 50)
open(f"{folder}/one.bin", "wb").write(os.urandom(200000))
open(f"{folder}/two.bin", "wb").write(b"two" * 1000)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range", "")
        with open(f"{folder}/log", "a") as log:
            log.write(f"{self.path} {asked}\n")
        _, manner, name = self.path.split("/", 2)
        path = f"{folder}/{name}"
        ftp = f"ftp://127.0.0.1/{name}"
        redirect = {"moved": f"/ok/{name}", "elsewhere": ftp, "round": self.path}
        if manner in redirect:
            return self.head(302, Location=redirect[manner])
        if not os.path.exists(path):
            return self.head(404)
        data, start = open(path, "rb").read(), 0
        if manner == "wrong":
            data = data[:-1] + bytes([data[-1] ^ 1])
        if asked and manner != "norange":
            start = int(asked[len("bytes="):-1])
            if start >= len(data):
                return self.head(416)
        self.head(206 if asked and manner != "norange" else 200, Content_Length=len(data) - start)
        if manner in ("cut", "stall"):
            data = data[: len(data) // 2]
        self.wfile.write(data[start:])
        if manner == "stall":
            self.wfile.flush()
            time.sleep(20)

    def head(self, status, **fields):
        self.send_response(status)
        for key, value in fields.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
