"""Looks at a built site with a browser: look.py SITE PICTURES

Every page is laid out at a desktop's and at a phone's width. A page that is wider than the screen, has no heading, or on
which a picture or a style sheet is missing is a fault. Then pictures are taken of some pages, light and dark, to be looked
at by a person. Wants chromium.
"""

import functools
import http.server
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading

WIDTHS = {"desktop": 1280, "phone": 390}
PICTURES = ["index", "guides/by-hand", "reference/accel-Accelerator", "findings/ACL0105", "operators"]
BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-software-rasterizer", "--hide-scrollbars",
           "--disable-dev-shm-usage", "--disable-background-networking"]
# Pages that one browser lays out, so that it needs little memory.
AT_A_TIME = 30
PATIENCE = 600
# Time that the scripts of a page see before its picture is taken; it passes as fast as the machine can.
BUDGET = "--virtual-time-budget=4000"

# Loads each page in a frame of each width and writes what is wrong with it as JSON.
PROBE = """<!doctype html><meta charset="utf-8"><body><script>
const pages = PAGES, widths = WIDTHS, faults = [];
let seen = 0;
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = "/" + page;
  document.body.append(frame);
  await loaded;
  const root = frame.contentDocument.documentElement;
  const say = text => faults.push(`${page} at ${width} pixels: ${text}`);
  if (root.scrollWidth > width) say(`is ${root.scrollWidth} pixels wide`);
  const heading = root.querySelector("h1");
  if (!heading || heading.getBoundingClientRect().height === 0) say("shows no heading");
  const content = root.querySelector(".md-content");
  if (!content || content.getBoundingClientRect().width < Math.min(width, 600) * 0.9) say("has no room for its text");
  for (const picture of root.querySelectorAll("img"))
    if (picture.complete && picture.naturalWidth === 0) say(`has no picture ${picture.src}`);
  if (getComputedStyle(root).getPropertyValue("--md-text-font").trim() === "") say("has no style");
  frame.remove();
  ++seen;
}
(async () => {
  for (const page of pages) for (const width of widths) await look(page, width);
  await fetch("/result", {method: "POST", body: JSON.stringify({seen, faults})});
})();
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/probe.html":
            body = self.server.probe.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            super().do_GET()

    def do_POST(self):
        self.server.results.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a browser that has ended


def serve(site):
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    server.probe, server.results = "", queue.Queue()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def lay_out(server, address, pages):
    server.probe = PROBE.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(list(WIDTHS.values())))
    # The browser's other processes write there for a moment after its end.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen([*BROWSER, f"--user-data-dir={profile}", "--remote-debugging-port=0", f"{address}/probe.html"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            result = json.loads(server.results.get(timeout=PATIENCE))
        except queue.Empty:
            return [f"chromium has not looked at {pages[0]} and {len(pages) - 1} more pages within {PATIENCE} s"]
        finally:
            browser.kill()
            browser.wait()
    expected = len(pages) * len(WIDTHS)
    return result["faults"] + ([] if result["seen"] == expected else [f"{result['seen']} of {expected} pages were seen"])


def picture(address, page, width, file, *options):
    if os.path.exists(file):
        os.remove(file)
    subprocess.run([*BROWSER, BUDGET, f"--window-size={width},1500", *options, f"--screenshot={file}",
                    f"{address}/{page}.html"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # An empty page takes less than 10 kB.
    return [] if os.path.exists(file) and os.path.getsize(file) > 20000 else [f"{page}: the picture is missing or empty"]


def main():
    site, pictures = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    pages = []
    for folder, _, names in os.walk(site):
        pages += [os.path.relpath(os.path.join(folder, name), site) for name in names
                  if name.endswith(".html") and name != "404.html"]
    server, address = serve(site)
    pages.sort()
    faults = [] if pages else [f"{site} has no pages"]
    for begin in range(0, len(pages), AT_A_TIME):
        faults += lay_out(server, address, pages[begin:begin + AT_A_TIME])
    os.makedirs(pictures, exist_ok=True)
    for page in PICTURES:
        name = page.replace("/", "-")
        for kind, width in WIDTHS.items():
            # Chromium's windows are 500 pixels wide at least.
            faults += picture(address, page, max(width, 500), f"{pictures}/{name}-{kind}.png")
        faults += picture(address, page, WIDTHS["desktop"], f"{pictures}/{name}-dark.png",
                          "--blink-settings=preferredColorScheme=0")
    print("\n".join(faults) or f"{len(pages)} pages at {' and '.join(map(str, WIDTHS.values()))} pixels; pictures in {pictures}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
