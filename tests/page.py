#!/usr/bin/env python3
"""page.py FOLDER PICTURE PID SHOTS [--seconds N] - the live page in a headless chromium, driven over the DevTools
protocol (two pipes, standard library only). FOLDER/runs holds `done` and `live` (trained by process PID). Every feature
is used as a user does; screenshots go to SHOTS. JEMPP is the program, CHROMIUM the browser."""
import argparse
import atexit
import base64
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

from serving import HANGS, Server, check, finish

arg = argparse.ArgumentParser()
arg.add_argument("folder")
arg.add_argument("picture")
arg.add_argument("pid", type=int)
arg.add_argument("shots")
arg.add_argument("--seconds", type=float, default=10)
arg = arg.parse_args()


class Browser:
    """chromium with one page; commands and events are JSON between NUL bytes."""

    def __init__(self):
        self.profile = tempfile.mkdtemp()
        ours, theirs = os.pipe(), os.pipe()

        def pipes():                                        # it reads 3 and writes 4
            a, b = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(a, 3)
            os.dup2(b, 4)
        self.process = subprocess.Popen(
            [os.environ.get("CHROMIUM", "chromium"), "--headless=new", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--mute-audio", f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.out, self.input = ours[1], theirs[0]
        self.left, self.n, self.events, self.problems = b"", 0, [], []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "DOM", "Network"]:
            self.send(domain + ".enable")

    def read(self, seconds):
        """The next message, or None."""
        end = time.time() + seconds
        while b"\0" not in self.left:
            if not select.select([self.input], [], [], max(0, end - time.time()))[0]:
                return None
            part = os.read(self.input, 1 << 16)
            if not part:
                sys.exit("chromium ended")
            self.left += part
        text, self.left = self.left.split(b"\0", 1)
        message = json.loads(text)
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(p["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.problems.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning"):
            self.problems.append(str(p["args"]))
        elif method == "Network.requestWillBeSent":
            self.events.append(p["request"]["url"])
        return message

    def send(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.time() + HANGS
        while time.time() < end:
            answer = self.read(end - time.time())
            if answer and answer.get("id") == self.n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
        sys.exit(f"chromium: {method}: no answer")

    def js(self, code):
        r = self.send("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{code}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def wait(self, code, seconds=HANGS):
        """Until the expression is true; its last value."""
        end = time.time() + seconds
        while True:
            try:
                value = self.js(code)
            except RuntimeError:                            # the page is not there yet
                value = None
            if value or time.time() > end:
                return value
            time.sleep(0.1)

    def size(self, width, height, dark=False, phone=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=bool(phone))
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def shot(self, name):
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        with open(os.path.join(arg.shots, name + ".png"), "wb") as f:
            f.write(base64.b64decode(data))

    def key(self, name, code=0):
        for kind in ["keyDown", "keyUp"]:
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if name == "Enter" and kind == "keyDown" else {}))

    def click(self, selector):
        """In its middle, once nothing covers it and it has stopped moving."""
        box = self.wait(f"""(async e => {{
            const middle = () => (b => [b.x + b.width / 2, b.y + b.height / 2])(e.getBoundingClientRect());
            e.scrollIntoView({{block: 'center'}});
            const before = middle();
            await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
            const [x, y] = middle();
            return x == before[0] && y == before[1] && e.contains(document.elementFromPoint(x, y)) && [x, y] }})(
            document.querySelector({selector!r}))""")
        if not box:
            sys.exit(f"{selector} cannot be clicked")
        for kind in ["mousePressed", "mouseReleased"]:
            self.send("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, selector, code):
        """Clicks until the expression is true: the page may redraw a button between press and release."""
        for _ in range(HANGS // 20):
            self.click(selector)
            if self.wait(code, 20):
                return True
        return False

    def file(self, selector, path):
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", files=[os.path.abspath(path)], nodeId=node)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


# Text on its ground, WCAG's contrast: every visible text at least 4.5. Charts' text has the ground of their card.
CONTRAST = """(() => {
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const lum = c => { const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]) };
  const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t; t = walk.nextNode();) {
    const e = t.parentElement;
    if (!t.data.trim() || !e.checkVisibility() || e.closest('script, noscript')) continue;
    const style = getComputedStyle(e), c = parse(e.closest('svg') ? style.fill : style.color), g = ground(e);
    const [a, b] = [lum(c), lum(g)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5 && !e.closest('button:disabled')) bad.push(`${t.data.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return bad })()"""

# What a screen reader needs: every control has a name, every picture a text.
NAMELESS = """[...document.querySelectorAll('button, input, select, a, img, svg[role=img], progress, summary')]
  .filter(e => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length ||
    e.closest('label') || e.hasAttribute('alt'))).map(e => e.outerHTML.slice(0, 80))"""


def looks(b, name, full=True):
    """Screenshots at both widths and schemes; no sideways scrolling, contrast, names."""
    for width, height, dark, phone in [(1280, 900, 0, 0), (1280, 900, 1, 0), (390, 844, 0, 1), (390, 844, 1, 1)]:
        b.size(width, height, dark, phone)
        b.shot(f"{name}-{'phone' if phone else 'desktop'}-{'dark' if dark else 'light'}")
        check(f"{name} fits {width} pixels", b.wait("document.documentElement.scrollWidth <= innerWidth", 20))
        bad = b.js(CONTRAST)
        check(f"{name}, {'dark' if dark else 'light'}: contrast of 4.5 {bad}", not bad)
    bad = b.js(NAMELESS)
    check(f"{name}: every control has a name {bad}", not bad)
    b.size(1280, 900)


os.makedirs(arg.shots, exist_ok=True)
server = Server(os.path.join(arg.folder, "runs"))
b = Browser()
atexit.register(b.close)
b.size(1280, 900)

# ---- several runs
b.send("Page.navigate", url=server.address)
check("a folder of runs begins with their list", b.wait("document.querySelectorAll('#runs-table tbody tr').length == 2"))
check("their curves are in one plot", b.wait("document.querySelectorAll('#runs-charts .chart:first-child path[d^=M]').length >= 4"))
check("two colours and two dashes", b.wait(
    "new Set([...document.querySelectorAll('#runs-charts .chart:nth-child(2) .key path')]"
    ".map(p => p.getAttribute('class') + p.getAttribute('stroke-dasharray'))).size == 2"))
looks(b, "runs")
keys = "document.querySelectorAll('#runs-charts .chart:nth-child(2) .key').length"
check("a run can be hidden", b.press("#runs-table tbody tr:first-child input", f"{keys} == {b.js(keys) - 1}"))

# ---- one run, live
b.js("document.querySelector('#runs-table a[href*=live]').focus()")
row = "document.querySelector('#runs-table a[href*=live]').closest('tr').textContent"
was = b.js(row)
check("a link keeps the focus while its row changes", b.wait(f"{row} != {was!r}") and
      b.js("document.activeElement.matches('#runs-table a[href*=live]')"))
b.key("Enter", 13)
check("the keyboard opens a run", b.wait("location.hash == '#/run/live' && !document.querySelector('#run').hidden"))
check("it is training", b.wait("document.querySelector('#run-state').textContent == 'training'"))
check("five charts", b.wait("document.querySelectorAll('#run-charts .chart:not([hidden])').length >= 5"))
check("time left", b.wait(r"/Time left\d/.test(document.querySelector('#run-facts').textContent)"))
step = "Number([...document.querySelectorAll('#run-facts div')].find(d => d.textContent.startsWith('Step')).lastChild.textContent.replace(/,/g, ''))"
mark = "(window.mark = window.mark || Math.random())"
mine, first, seen, begun, many = b.js(mark), b.js(step), set(), time.time(), arg.seconds / 4
while time.time() - begun < arg.seconds or (len(seen) < many and time.time() - begun < HANGS):
    seen.add(b.js(step))
    time.sleep(0.5)
check(f"it follows training for {arg.seconds:g} s without a reload: steps {first} to {max(seen)}, {len(seen)} values",
      max(seen) > first and len(seen) >= many and b.js(mark) == mine)
check("log lines", b.wait("document.querySelectorAll('#messages li').length >= 3"))
b.wait("document.querySelector('#samples-image').complete && document.querySelector('#samples-image').naturalWidth > 0")
check("the samples of an epoch", b.js("document.querySelector('#samples-image').naturalWidth > 0"))
label = "document.querySelector('#samples-label').textContent"
b.wait("document.querySelector('#samples-slider').max > 0")             # two epochs at least
newest = b.js(label)
b.js("document.querySelector('#samples-slider').focus()")
b.key("Home", 36)
check("a slider goes to the first", b.wait(f"{label} != {newest!r} && document.querySelector('#samples-slider').value == '0'"))
b.js("document.querySelector('#settings').open = true")
b.js("(e => { e.value = 'batch'; e.dispatchEvent(new Event('input')) })(document.querySelector('#settings-filter'))")
check("settings", b.wait("document.querySelector('#settings tbody').textContent.includes('batch')"))
b.js("document.querySelector('#run-charts svg[role=img]').focus()")
b.key("ArrowLeft", 37)
check("a chart is read by arrow keys", b.wait("document.querySelector('#run-charts .cursor').getAttribute('visibility') == 'visible'"))
looks(b, "run")

# ---- stopping it
asked = "document.querySelector('#stop-dialog').open"
check("a question first", b.press("#stop", asked))
check("no is no", b.press("#stop-dialog button[value=no]", "!" + asked) and
      b.js("document.querySelector('#run-state').textContent") == "training")
b.press("#stop", asked)
b.press("#stop-dialog button[value=stop]", "!" + asked)
check("the run stops and the page shows it", b.wait("document.querySelector('#run-state').textContent == 'stopped'"))
check("the button is gone", b.wait("document.querySelector('#stop').hidden"))

# ---- a finished run
b.js("location.hash = '#/run/done'")
check("a finished run", b.wait("document.querySelector('#run-state').textContent == 'finished'"))
check("its divergence is marked in every chart and counted", b.wait(
    "document.querySelectorAll('#run-charts .chart:not([hidden]) .mark').length == 5") and
    b.wait("document.querySelector('#run-facts').textContent.includes('Divergences1')"))
check("its test accuracy", b.wait("document.querySelector('#run-facts').textContent.includes('Test accuracy')"))
b.js("location.hash = '#/run/gone'")
check("a run that is not there is named", b.wait("!document.querySelector('#lost').hidden") and
      "no run “gone”" in b.js("document.querySelector('#lost').textContent"))

# ---- the model
check("the model's page", b.press("#tab-model", "!document.querySelector('#model-body').hidden"))
b.js("location.hash = '#/model/done'")
check("the model of a chosen run", b.wait("document.querySelector('#model-select').value == 'done'"))
b.file("#file", arg.picture)
check("a picture is answered in words", b.wait("document.querySelector('#words').textContent.length > 40"))
check("probabilities of all classes", b.js("document.querySelectorAll('#bars .bar').length") == 10)
check("log p(x) on the histogram", b.js("!!document.querySelector('#density path.hist') && !!document.querySelector('#density circle')"))
legend = "document.querySelector('#density figcaption').textContent"
was = b.js(legend)
b.js("document.querySelector('#noise').focus()")
for _ in range(8):
    b.key("ArrowRight", 39)
check("noise moves log p(x)", b.wait(f"{legend} != {was!r}"))
was = b.js(legend)
b.js("(e => { e.value = 60; e.dispatchEvent(new Event('input')) })(document.querySelector('#rotate'))")
check("so does rotation", b.wait(f"{legend} != {was!r}"))
looks(b, "model")
with open(os.path.join(arg.folder, "broken.png"), "wb") as f:
    f.write(b"no picture at all, but some text")
b.file("#file", os.path.join(arg.folder, "broken.png"))
check("a picture that cannot be read is a sentence", b.wait("!document.querySelector('#picture-alert').hidden") and
      "cannot be used" in b.js("document.querySelector('#picture-alert').textContent"))
b.js("""(async () => {
  const data = new DataTransfer(), body = await (await fetch('/api/run/done/sample/' +
    (await (await fetch('/api/run/done')).json()).samples[0])).blob();
  data.items.add(new File([body], 'x.png', { type: 'image/png' }));
  document.querySelector('#drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
})()""")
check("a picture that is dropped", b.wait("!document.querySelector('#result').hidden && document.querySelector('#picture-alert').hidden"))
b.js("document.querySelector('#words').textContent = ''")
b.js("""(() => {
  const c = document.createElement('canvas'); c.width = c.height = 40;
  c.getContext('2d').fillRect(5, 5, 20, 20);
  return new Promise(done => c.toBlob(blob => {
    const data = new DataTransfer();
    data.items.add(new File([blob], 'x.png', { type: 'image/png' }));
    dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }));
    done();
  }));
})()""")
check("a picture that is pasted", b.wait("document.querySelector('#words').textContent.length > 40"))

# ---- chains
b.js("document.querySelector('#draw-class').value = document.querySelectorAll('#draw-class option')[4].value")
b.js("""window.pictures = new Set(); window.words = [];
new MutationObserver(seen => seen.forEach(m => pictures.add(m.oldValue).add(m.target.src)))
    .observe(document.querySelector('#draw-image'), { attributeFilter: ['src'], attributeOldValue: true });
new MutationObserver(seen => words.push(...seen.flatMap(m => [...m.addedNodes].map(node => node.data))))
    .observe(document.querySelector('#draw-status'), { childList: true })""")
check("chains climb to the end", b.press("#draw-start", "/images in/.test(document.querySelector('#draw-status').textContent)"))
check("fewer images than asked for are explained", "no more of one class" in b.js("document.querySelector('#draw-status').textContent"))
check("frame by frame", b.js("words.filter(w => /^Step [1-9]/.test(w)).length > 1"))
check("and the picture changes", b.js("pictures.delete(null), pictures.size > 2"))
b.js("document.querySelector('#draw-slider').focus()")
b.key("Home", 36)
check("their first step can be seen again", b.wait("document.querySelector('#draw-step').textContent.startsWith('0 of')"))
b.js("""new MutationObserver((_, observer) => { observer.disconnect(); document.querySelector('#draw-stop').click() })
    .observe(document.querySelector('#draw-status'), { childList: true })""")     # at once: they may be fast
check("they can be stopped", b.press("#draw-start", "document.querySelector('#draw-status').textContent == 'Stopped.'"))
b.key("End", 35)
looks(b, "draw")

# ---- nothing else was asked, nothing went wrong
outside = [u for u in b.events if not u.startswith((server.address, "data:", "blob:", "about:"))]
check(f"no outside address {outside}", not outside)
expected = re.compile(r"422")                               # the picture that cannot be read
problems = [p for p in b.problems if not expected.search(p)]
check(f"no console errors {problems}", not problems)
check("the server ends", server.close() == 130)
check("chains without a server are a sentence",
      b.press("#draw-start", "/does not answer/.test(document.querySelector('#draw-alert').textContent)") and
      b.js("document.querySelector('#draw-status').textContent") == "")
check("a picture is not blamed for it",
      b.press("#reset", "/^The server does not answer/.test(document.querySelector('#picture-alert').textContent)"))
finish()
