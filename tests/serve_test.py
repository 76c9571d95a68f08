#!/usr/bin/env python3
"""serve_test.py PICTURE PID SERVE.md [--many N] - clients of `jempp serve runs`, in the folder that holds runs/done
(finished) and runs/live (trained by process PID). JEMPP is the program. Standard library only."""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import time
import zlib

import serving
from serving import HANGS, PROGRAM, check, finish, wait_until

arg = argparse.ArgumentParser()
arg.add_argument("picture")
arg.add_argument("pid", type=int)
arg.add_argument("docs")
arg.add_argument("--many", type=int, default=300)
arg = arg.parse_args()
PICTURE = open(arg.picture, "rb").read()
ROOT = pathlib.Path(__file__).resolve().parent.parent


def whole_answer(got):
    head, end, body = got.partition(b"\r\n\r\n")
    size = re.search(rb"(?i)content-length: *(\d+)", head)
    return bool(end and size and len(body) >= int(size[1]))


class Server(serving.Server):
    """One that is asked."""

    def ask(self, method, path, body=None, headers=None, timeout=HANGS):
        """status, headers, body"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body, headers or {})
            a = c.getresponse()
            return a.status, dict(a.getheaders()), a.read()
        finally:
            c.close()

    def json(self, method, path, body=None, headers=None):
        status, _, text = self.ask(method, path, body, headers)
        return status, json.loads(text)

    def raw(self, data, wait=HANGS):
        """The answer to these bytes; b"" where the connection is closed, or `wait` seconds pass, without one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as s:
            got = b""
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:                                 # it has heard enough, and may have answered
                pass
            try:
                while not whole_answer(got) and (part := s.recv(65536)):
                    got += part
            except OSError:
                pass
            return got

    def memory(self):
        return int(re.search(r"VmRSS:\s*(\d+)", open(f"/proc/{self.process.pid}/status").read())[1])

    def cpu(self):
        f = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def events(server, method, path, body=None, headers=None, most=10**6, seconds=HANGS):
    """The events of a stream as (name, object)."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    c.request(method, path, body, {"Accept": "text/event-stream", **(headers or {})})
    a = c.getresponse()
    found, name, end = [], "", time.time() + seconds
    while len(found) < most and time.time() < end and (line := a.readline()):
        if line.startswith(b"event: "):
            name = line[7:].strip().decode()
        elif line.startswith(b"data: "):
            found.append((name, json.loads(line[6:])))
    c.close()
    return found


def png(width, height, pixels):
    """A grey PNG of zeros, however large."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(bytes(pixels))) + chunk(b"IEND", b""))


os.symlink("/etc", "runs/link")
os.makedirs("runs/fake/samples")
open("runs/fake/log.tsv", "w").write("step\tepoch\n0\tx\n")
os.symlink("/etc/passwd", "runs/fake/samples/step-0000001.png")
os.symlink("/etc/passwd", "runs/fake/run.json")
s = Server("runs")

for args, words in [(["runs", "--port", str(s.port)], "--port chooses another"), (["nowhere"], "nowhere"),
                    ([arg.picture], "cat.png"), (["runs", "--host", "no such name"], "--host no such name"),
                    (["runs", "--port", "99999"], "--port")]:
    r = subprocess.run([PROGRAM, "serve", *args], capture_output=True, text=True, timeout=HANGS)
    check(f"serve {' '.join(args)}: {r.stderr.strip()[:100]}", r.returncode in (1, 2) and words in r.stderr)

# ---- runs
def live_is_timed():
    global status, all_runs, names
    status, all_runs = s.json("GET", "/api/runs")
    names = {r["name"]: r for r in all_runs["runs"]}
    return "live" in names and names["live"]["seconds_left"] is not None


wait_until(live_is_timed)
check("the runs of the folder are listed, links are not", status == 200 and set(names) == {"done", "live", "fake"})
check("a finished run, a training one", names["done"]["state"] == "finished" and names["live"]["state"] == "training")
check("time left is known of the one that trains", (names["live"]["seconds_left"] or 0) > 0)
check("a damaged log is a sentence", "line 2" in names["fake"]["error"])
status, run = s.json("GET", "/api/run/done")
check("a run has curves, settings, messages, samples",
      len(run["curves"]["loss"]) == 30 and run["options"]["batch"] == "20" and run["messages"] and run["samples"])
check("every version of the address answers alike", s.json("GET", "/api/v1/run/done")[1]["curves"] == run["curves"])
status, head, data = s.ask("GET", f"/api/run/done/sample/{run['samples'][-1]}")
check("a grid is a PNG", status == 200 and head["Content-Type"] == "image/png" and data[:4] == b"\x89PNG")
check("a link is no grid", s.ask("GET", "/api/run/fake/sample/1")[0] == 404)
seen = events(s, "GET", "/api/events?run=live", most=4)
steps = [e["step"] for _, e in seen]
check(f"events follow the run: {steps}", len(steps) == 4 and steps == sorted(steps) and steps[0] < steps[-1])
check("the first event of all runs lists them", len(events(s, "GET", "/api/events", most=1)[0][1]["runs"]) == 3)
check("no such run", s.json("GET", "/api/run/nowhere")[0] == 404 and s.json("GET", "/api/events?run=x")[0] == 404)

# ---- the model
status, model = s.json("GET", "/api/model?model=done")
check("the model says its classes and percentiles", len(model["classes"]) == 10 and len(model["percentiles"]) == 101)
status, answer = s.json("POST", "/api/predict?model=done", PICTURE)
check("a picture is classified", status == 200 and answer["class"] in model["classes"] and
      abs(sum(answer["probabilities"]) - 1) < 1e-5 and answer["words"] and answer["known"] in (True, False))
same = s.json("POST", "/api/predict?model=done&rotate=0&noise=0", PICTURE)[1]
turned = s.json("POST", "/api/predict?model=done&rotate=90&noise=0.2", PICTURE)[1]
check("noise and rotation change the score, none does not",
      same["log_px"] == answer["log_px"] and turned["log_px"] != answer["log_px"])
prediction = json.loads(subprocess.run([PROGRAM, "predict", "runs/done", arg.picture, "--json", "--threads", "1", "--conv", "direct"],
                                       capture_output=True, check=True).stdout)[0]
check("the same as jempp predict", prediction["class"] == answer["class"] and
      abs(prediction["log_px"] - answer["log_px"]) < 1e-4)
for what, bytes_, words in [("an empty picture", b"", "0 bytes"), ("a text", b"hello, this is no picture", "PNG, JPEG"),
                            ("half a PNG", PICTURE[:500], "PNG"), ("a GIF", b"GIF89a" + bytes(50), "GIF"),
                            ("a bomb", png(16000, 16000, 100), "million pixels")]:
    status, e = s.json("POST", "/api/predict?model=done", bytes_)
    check(f"{what}: {e.get('error')}", status == 422 and words in e["error"])
check("a number that is none", s.json("POST", "/api/predict?noise=x", PICTURE)[0] == 400)
check("no such model", s.json("POST", "/api/predict?model=..", PICTURE)[0] == 404 and
      s.json("GET", "/api/model?model=link")[0] == 404)

# ---- chains
seen = events(s, "POST", "/api/sample?model=done", json.dumps({"class": model["classes"][3], "count": 2, "steps": 5}))
frames = [e for name, e in seen if name == "frame"]
check("chains are watched frame by frame", [e["step"] for e in frames] == list(range(6)) and
      seen[-1][0] == "done" and seen[-1][1]["class"] == [model["classes"][3]] * 2 and
      frames[0]["image"] != frames[-1]["image"])
status, answer = s.json("POST", "/api/sample?model=done", json.dumps({"count": 3, "steps": 2, "seed": 5}))
again = s.json("POST", "/api/sample?model=done", json.dumps({"count": 3, "steps": 2, "seed": 5}))[1]
check("one answer without a stream; a seed gives the same", len(answer["log_px"]) == 3 and answer == again)
for body in ['{"class": "unicorn"}', '{"count": 0}', '{"count": 1.5}', '{"steps": 1e9}', '[1]', '{"x": 1}', '{', '"',
             '{"class": ["a"]}', "\xff", '{"count":1,"count":2}', "[" * 1000]:
    status, e = s.json("POST", "/api/sample?model=done", body.encode("latin1"))
    check(f"sample {body[:20]}: {e.get('error')}", status == 400)

# ---- the page that documents it names every field
page = re.sub(r"```.*?```", "", open(arg.docs).read(), flags=re.S)
documented = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", page))))
for what, fields in [("runs", all_runs), ("a summary", names["done"]), ("a run", run), ("the model", model),
                     ("a prediction", same), ("samples", again), ("a frame", frames[0])]:
    missing = set(fields) - documented
    check(f"docs/serve.md has every field of {what} {missing or ''}", not missing)

# ---- who may ask
check("another Host", s.json("GET", "/api/runs", headers={"Host": "evil.example"})[0] == 421)
check("a Host without a name", s.json("GET", "/api/runs", headers={"Host": ""})[0] in (400, 421))
check("another Origin", s.json("POST", "/api/predict", PICTURE, {"Origin": "http://evil.example"})[0] == 403)
check("its own Origin", s.json("POST", "/api/predict?model=done", PICTURE,
                               {"Origin": f"http://127.0.0.1:{s.port}"})[0] == 200)
check("a form of another page", s.json("POST", "/api/run/live/stop", "", {"Sec-Fetch-Site": "cross-site"})[0] == 403)
status, head, page = s.ask("GET", "/")
check("the page names no other address", status == 200 and b"http" not in page.replace(b"http://www.w3.org", b"") and
      "default-src 'none'" in head["Content-Security-Policy"])

# ---- addresses
for path in ["/..", "/../etc/passwd", "/%2e%2e/etc/passwd", "/api/run/..", "/api/run/%2e%2e/sample/1", "/api/run/..%2f..",
             "/api/run/done/sample/..%2frun.json", "/api/run/done/sample/1%00", "/api/run/link", "/api/run/done/../live",
             "//etc/passwd", "/api/run/done%5c..", "/%", "/%zz", "/" + "a" * 3000, "/api/run/a/b/c/d/e/f",
             "/?" + "a=1&" * 50, "/api/run/done/sample/-1", "/api/run/done/sample/18446744073709551617", "/api/nothing"]:
    status = s.ask("GET", path)[0]
    check(f"{path[:40]}: {status}", status in (400, 404, 414))
for method, path, allowed in [("DELETE", "/api/runs", "GET"), ("POST", "/", "GET"), ("GET", "/api/predict", "POST"),
                              ("PUT", "/api/run/done", "GET, POST"), ("HEAD", "/api/events", "GET")]:
    status, head, _ = s.ask(method, path)
    check(f"{method} {path}: {head.get('Allow')} is allowed", status == 405 and head.get("Allow") == allowed)
for path in ["/", "/api/run/done", "/api/model?model=done", f"/api/run/done/sample/{run['samples'][-1]}", "/api/run/nowhere"]:
    got, full = s.ask("HEAD", path), s.ask("GET", path)
    check(f"HEAD {path} is GET without the data", got[0] == full[0] and got[2] == b"" and
          got[1]["Content-Length"] == full[1]["Content-Length"])

# ---- sizes and broken requests
check("too large", s.json("POST", "/api/predict", bytes(17 << 20))[0] == 413)
check("too large for JSON", s.json("POST", "/api/sample", b" " * 70000)[0] == 413)
check("far too large: refused before it is read", b" 413 " in s.raw(
    b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nabc")[:20])
chunk = b"fffff\r\n" + bytes(0xfffff) + b"\r\n"
endless = s.raw(b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 20 +
                b"0\r\n\r\n")
check("chunks without end", b" 413 " in endless[:20])
BROKEN = [b"", b"\r\n\r\n", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"\x00\xff" * 500, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 9000,
          b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
          b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\nhalf",
          b"POST /api/sample HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
          b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)]
with concurrent.futures.ThreadPoolExecutor(len(BROKEN)) as pool:
    answers = list(pool.map(lambda data: s.raw(data, 5), BROKEN))
for data, got in zip(BROKEN, answers):
    check(f"{data[:24]!r}: {got[:30]!r}", got == b"" or got.startswith(b"HTTP/1."))

# ---- many clients, and those that vanish or read nothing
before = s.memory()
slow = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(20)]
for k in slow:
    k.send(b"GET /api/runs HTTP/1.1\r\nHost: loc")
sleepers = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(20)]
for k in sleepers:
    k.send(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
for _ in range(5):
    k = socket.create_connection(("127.0.0.1", s.port))
    body = b'{"steps": 200}'
    k.send(b"POST /api/sample?model=done HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n"
           b"\r\n%s" % (len(body), body))
    time.sleep(0.1)
    k.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    k.close()
with concurrent.futures.ThreadPoolExecutor(200) as pool:
    codes = list(pool.map(lambda _: s.ask("POST", "/api/predict?model=done", PICTURE)[0], range(400)))
check(f"200 clients at once are answered or refused: {({c: codes.count(c) for c in codes})}",
      set(codes) <= {200, 429, 503} and codes.count(200) >= 40)
start, times = time.time(), []
c = http.client.HTTPConnection("127.0.0.1", s.port)
for i in range(arg.many):
    t = time.time()
    c.request("POST", "/api/predict?model=done" if i % 4 else "/api/predict?model=done&noise=0.1", PICTURE)
    a = c.getresponse()
    a.read()
    times.append(time.time() - t)
    if i == arg.many // 10:
        before = max(before, s.memory())
times.sort()
print(f"    {arg.many} predictions: {arg.many / (time.time() - start):.0f} per second, median "
      f"{1e3 * times[len(times) // 2]:.2f} ms, 99 % {1e3 * times[int(len(times) * .99)]:.2f} ms, "
      f"{before} kB before, {s.memory()} kB after")
check("memory is flat", "asan" in PROGRAM or s.memory() < before + 6000)
if arg.many >= 10000:
    for k in slow:
        k.settimeout(HANGS)
    check("headers that never end are not waited for", all(k.recv(1) == b"" for k in slow))
for k in slow + sleepers:
    k.close()

# ---- stopping a run, and the server
check("a finished run cannot be stopped", s.json("POST", "/api/run/done/stop")[0] == 409)
check("the page stops a run", s.json("POST", "/api/run/live/stop")[1].get("stopping") is True)
wait_until(lambda: s.json("GET", "/api/run/live")[1]["state"] == "stopped")
run = s.json("GET", "/api/run/live")[1]
check("it is seen to have stopped", run["state"] == "stopped" and "stop" in run["messages"][-1]["message"])
check("SIGINT ends the server within seconds", s.close() == 130)

# ---- other machines need a token; a model file alone has no runs
s = Server("runs/done/best.safetensors", "--host", "0.0.0.0")
check("a token is printed", s.token and len(s.token) == 32)
check(f"the address can be opened from elsewhere: {s.host}", s.host != "0.0.0.0")
check("and one from here", s.local == f"http://127.0.0.1:{s.port}/?token={s.token}")
c = http.client.HTTPConnection(s.host, s.port, timeout=HANGS)
c.request("GET", s.address[s.address.index("/?"):])
check("which answers", c.getresponse().status == 303)
c.close()
auth = {"Authorization": "Bearer " + s.token}
check("without it nothing", s.json("GET", "/api/runs")[0] == 401 and s.ask("GET", "/")[0] == 401 and
      s.json("GET", "/api/runs", headers={"Authorization": "Bearer " + "0" * 32})[0] == 401)
check("with it everything", s.json("GET", "/api/runs", headers=auth)[1]["runs"] == [] and
      s.json("POST", "/api/predict", PICTURE, auth)[0] == 200)
status, head, _ = s.ask("GET", "/?token=" + s.token)
cookie = head.get("Set-Cookie", "")
check("the browser gets a cookie", status == 303 and "HttpOnly" in cookie and "SameSite=Strict" in cookie)
check("which is enough", s.ask("GET", "/api/model", headers={"Cookie": "a=b; " + cookie.split(";")[0]})[0] == 200)
check("a name that someone made point here", s.json("GET", "/api/runs", headers={**auth, "Host": "evil.example"})[0] == 421)
s.close()

# ---- a folder in which training begins later, and one of more runs than are followed
os.mkdir("later")
s = Server("later")
check("an empty folder has no runs", s.json("GET", "/api/runs")[1]["runs"] == [])
shutil.copytree("runs/done", "later", dirs_exist_ok=True)
check("it becomes a run when training begins in it", wait_until(
    lambda: [r["name"] for r in s.json("GET", "/api/runs")[1]["runs"]] == ["later"]) and
    s.json("POST", "/api/predict", PICTURE)[1]["model"] == "later")
s.close()
for i in range(259):
    log = pathlib.Path("many", f"run{i:03}", "log.tsv")
    log.parent.mkdir(parents=True)
    log.write_text("step\tepoch\n0\t0\n")
    os.utime(log, (i, i))
s = Server("many")
answer = s.json("GET", "/api/runs")[1]
check("of many runs the newest are followed, and the number of others is known",
      [r["name"] for r in answer["runs"]] == [f"run{i:03}" for i in range(3, 259)] and answer["left_out"] == 3)
s.close()

# ---- words for someone who has never heard of probabilities
s = Server(str(ROOT / "models/cifar10-wrn-16-4.safetensors"))
answer = s.json("POST", "/api/predict", (ROOT / "tests/pictures/frog.png").read_bytes())[1]
check(f"nobody is 100 % sure: {max(answer['probabilities'])}, {answer['words'][:60]}",
      max(answer["probabilities"]) > 0.9995 and "more than 99 % sure" in answer["words"])
s.close()
finish()
