"""serving.py - what the tests of `jempp serve` share: checks that count, and the program on a free port. JEMPP is the
program. Standard library only."""
import atexit
import os
import re
import signal
import subprocess
import sys
import threading
import time

PROGRAM = os.environ["JEMPP"]
HANGS = 300                     # seconds after which something hangs, however busy the machine
failed = 0


def check(sentence, holds):
    global failed
    print(("ok: " if holds else "FAILED: ") + sentence, flush=True)
    failed += not holds


def wait_until(holds, seconds=HANGS):
    """What `holds` returns once it is true, or at last."""
    end = time.monotonic() + seconds
    while not (value := holds()) and time.monotonic() < end:
        time.sleep(0.1)
    return value


def finish():
    print(f"{failed} failed")
    sys.exit(failed > 0)


class Server:
    """A `jempp serve` with these arguments."""

    def __init__(self, *args):
        self.process = subprocess.Popen([PROGRAM, "serve", *args, "--port", "0", "--threads", "1", "--conv", "direct"],
                                        stderr=subprocess.PIPE, text=True)
        atexit.register(lambda: self.process.poll() is None and self.process.kill())
        self.address = self.process.stderr.readline().strip()
        found = re.fullmatch(r"http://\[?([^]/]*)\]?:(\d+)/(\?token=(\w+))?", self.address)
        if not found:
            sys.exit("serve printed: " + self.address)
        self.host, self.port, self.token = found[1], int(found[2]), found[4]
        self.local = self.process.stderr.readline().strip() if self.token and self.host != "127.0.0.1" else self.address
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def close(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(HANGS)
